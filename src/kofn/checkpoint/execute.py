"""What a worker does with an item: run its jobs in a sandbox, and verify what came of them."""

from __future__ import annotations

import atexit
import importlib
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.box import Box
from kofn.checkpoint.verify import VERIFIER, verified
from kofn.engine.worker import one_line
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.checkpoint.sandbox import Sandbox
    from kofn.checkpoint.work import Context, Done, Item

_boxes: dict[Any, Box] = {}
_installed: dict[str, Mapping[str, str]] = {}  # the folder of the author's code that is used, and the code


def run_item(context: Context, item: Item) -> list[Done]:
    """What came of every job of an item, in order."""
    _install(context)
    adapter = importlib.import_module(f"kofn.checkpoint.adapters.{context.adapter}")
    box = box_of(context.sandbox, context.scratch)
    with_verifier = f"{VERIFIER}.py" in context.code
    return [verified(job, seen, with_verifier=with_verifier) for job, seen in adapter.observe(box, context, item)]


def try_author(context: Context, own: list[tuple[str, dict[str, Any]]]) -> str | None:
    """What is wrong with the author's code, in one line; None where all of it can be imported and called."""
    from kofn.checkpoint.matchers.own import Own

    _install(context)
    if f"{VERIFIER}.py" in context.code:
        try:
            module = importlib.import_module(VERIFIER)
        except BaseException as problem:  # an import may raise anything
            return f"{VERIFIER}.py: {one_line(problem)}"
        if not callable(getattr(module, "verify", None)):
            return f"{VERIFIER}.py: there is no function `verify(case, actual)` in it"
    for function, params in own:
        try:
            Own(function=function, params=params).load()
        except InputError as problem:
            return str(problem)
    return None


def box_of(sandbox: Sandbox, scratch: str | None = None) -> Box:
    """The box of this process."""
    key = (sandbox, scratch)
    if key not in _boxes:
        root = None if scratch is None or not Path(scratch).is_dir() else Path(scratch)
        _boxes[key] = Box(sandbox, root)
        atexit.register(_boxes[key].close)
    return _boxes[key]


def _install(context: Context) -> None:
    """Put the author's code where it can be imported, in place of another author's."""
    if not context.code or context.code in _installed.values():
        return
    box = box_of(context.sandbox, context.scratch)
    for old in _installed:
        sys.path.remove(old)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(old):
                del sys.modules[name]
    _installed.clear()
    folder = Path(mkdtemp(prefix="author-", dir=box.root))
    for name, text in context.code.items():
        (folder / name).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    _installed[str(folder)] = context.code
