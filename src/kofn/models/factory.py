"""Opens the backend that a spec such as `smollm2`, `openai:MODEL` or `hf:PATH` names."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.models.base import Model
from kofn.models.fake import Fake
from kofn.registry import model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# A run passes these to all its models; a backend without such a parameter ignores them instead of refusing them.
SHARED = frozenset({"device", "batch", "timeout"})


def open_model(
    spec: str | Callable[..., Any] | Model, *, reproducible: bool = False, options: Mapping[str, Any] | None = None
) -> Model:
    """The backend of a spec such as "smollm2", "openai:MODEL" or "hf:PATH"; of a function; or the one given.

    `options` are keyword parameters of the backend. `device` and `batch` are left out where it has none, as is
    `reproducible`; any other that it does not take is an error. Nothing is loaded and no server is asked here.

    >>> open_model("smollm2").name, open_model(str.upper).name
    ('smollm2', 'fake:builtins:str.upper')
    """
    if isinstance(spec, Model):
        return spec
    if not isinstance(spec, str):
        return Fake.of(spec)
    prefix, colon, rest = spec.strip().partition(":")
    found = model(prefix)
    taken = _accepted_options(spec, found, {**(options or {}), "reproducible": reproducible})
    _check_rest(prefix, colon + rest, found)
    made = found(rest, **taken)
    assert isinstance(made, Model)
    return made


def _accepted_options(spec: str, found: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a backend takes."""
    parameters = inspect.signature(found).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return dict(options)
    for name in options:
        if name not in names and name not in SHARED | {"reproducible"}:
            raise InputError(f"model {spec}: no option {name!r}: it takes {', '.join(names) or 'none'}")
    return {name: value for name, value in options.items() if name in names}


def _check_rest(prefix: str, rest: str, found: Any) -> None:
    """Most backends need to be told which model; one that does not has a default."""
    first = next(iter(inspect.signature(found).parameters.values()))
    if rest in ("", ":") and first.default is first.empty:
        raise InputError(f"model {prefix!r}: expected {prefix}:... : `kofn list models` shows what follows")
