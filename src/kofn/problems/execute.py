"""The worker side of a verification: runs the cases of a work item in a sandbox and verifies the results.

A worker imports this module, so it needs the standard library alone.
"""

from __future__ import annotations

import atexit
import importlib
import sys
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.parallel.worker import format_error
from kofn.problems.attribute_checks import VERIFIER, verify_case
from kofn.sandbox.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.problems.case import CaseOutcome, WorkContext, WorkItem
    from kofn.sandbox.base import Sandbox

_workspaces: dict[Any, Workspace] = {}
_installed: dict[str, Mapping[str, str]] = {}  # the folder of the author's code that is used, and the code


def run_item(context: WorkContext, item: WorkItem) -> list[CaseOutcome]:
    """The outcomes of the cases of an item, in order."""
    _install(context)
    adapter = importlib.import_module(f"kofn.problems.adapters.{context.adapter}_adapter")
    workspace = workspace_for(context.sandbox, context.scratch)
    with_verifier = f"{VERIFIER}.py" in context.code
    observations = adapter.observe(workspace, context, item)
    return [verify_case(case, observation, with_verifier=with_verifier) for case, observation in observations]


def try_author_code(context: WorkContext, custom: list[tuple[str, dict[str, Any]]]) -> str | None:
    """What is wrong with the author's code, in one line; None where all of it can be imported and called."""
    from kofn.problems.matchers.custom import CustomMatcher  # few problems have one, and it loads `inspect`

    _install(context)
    if f"{VERIFIER}.py" in context.code:
        try:
            module = importlib.import_module(VERIFIER)
        except BaseException as problem:  # an import may raise anything
            return f"{VERIFIER}.py: {format_error(problem)}"
        if not callable(getattr(module, "verify", None)):
            return f"{VERIFIER}.py: there is no function `verify(case, actual)` in it"
    for function, params in custom:
        try:
            CustomMatcher(function=function, params=params).load()
        except InputError as problem:
            return str(problem)
    return None


def workspace_for(sandbox: Sandbox, scratch: str | None = None) -> Workspace:
    """The workspace of this process, made when it is first needed."""
    key = (sandbox, scratch)
    if key not in _workspaces:
        root = None if scratch is None or not Path(scratch).is_dir() else Path(scratch)
        _workspaces[key] = Workspace(sandbox, root)
        atexit.register(_workspaces[key].close)
    return _workspaces[key]


def _install(context: WorkContext) -> None:
    """Put the author's code where it can be imported, in place of another author's."""
    if not context.code or context.code in _installed.values():
        return
    workspace = workspace_for(context.sandbox, context.scratch)
    for old in _installed:
        sys.path.remove(old)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(old):
                del sys.modules[name]
    _installed.clear()
    folder = Path(mkdtemp(prefix="author-", dir=workspace.root))
    for name, text in context.code.items():
        (folder / name).write_text(text, encoding="utf-8")
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    _installed[str(folder)] = context.code
