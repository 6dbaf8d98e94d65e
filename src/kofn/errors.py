"""What can go wrong, as one tree.

    KofnError
    ├── InputError      the user's input is wrong: one line that names file, line or field, and the fix (exit 2)
    │   ├── UnknownName     a name nothing answers to; offers the nearest
    │   ├── CallFailed      a function of the user's own raised an exception
    │   └── MissingExtra    an optional package is needed: what to install and why
    └── WorldError      a server, a disk or a process failed; the work can be resumed (exit 3)

Anything else that escapes is a bug and shows a traceback.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class KofnError(Exception):
    """Base of every error kofn raises on purpose."""

    exit_code = 1


class InputError(KofnError, ValueError):
    """The user's input is wrong. The message is one line and says what to do."""

    exit_code = 2


class UnknownName(InputError, KeyError):
    """A name that nothing answers to.

    >>> str(UnknownName("aggregator", "any_pas", ["any_pass", "all_pass", "mean"]))
    "unknown aggregator 'any_pas': did you mean any_pass or all_pass?"

    `also` maps what other tools say to the name here:

    >>> str(UnknownName("metric", "F1", ["bleu", "token_f1"], also={"f1": "token_f1"}))
    "unknown metric 'F1': did you mean token_f1?"
    """

    def __init__(
        self, kind: str, name: str, known: list[str], hint: str = "", also: Mapping[str, str] | None = None
    ) -> None:
        import difflib

        meant = (also or {}).get(name.lower())
        near = [meant] if meant else difflib.get_close_matches(name, known, n=3, cutoff=0.6)
        offer = f"did you mean {' or '.join(near)}?" if near else (hint or f"known: {', '.join(sorted(known))}")
        self.kind, self.name = kind, name
        self.message = f"unknown {kind} {name!r}: {offer}"
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class CallFailed(InputError):
    """A function of the user's own raised an exception, on the row of this number where rows were graded."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


class MissingExtra(InputError, ImportError):
    """An optional package is needed.

    >>> str(MissingExtra("math-verify", "math", "metric math_equal"))
    "metric math_equal needs math-verify: pip install 'kofn[math]'"
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'kofn[{extra}]'")


def import_extra(module: str, extra: str, purpose: str, *, package: str = "") -> Any:
    """A module of an optional package (named as the module unless `package` says otherwise), or MissingExtra.

    >>> import_extra("json", "text", "metric bleu").__name__
    'json'
    """
    try:
        return import_module(module)
    except ImportError:
        raise MissingExtra(package or module, extra, purpose) from None


class WorldError(KofnError):
    """Something outside kofn failed; what was done is kept and can be resumed."""

    exit_code = 3
