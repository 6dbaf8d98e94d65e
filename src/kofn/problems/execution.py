"""The worker side: runs cases, or one program with its tests, in a sandbox, and verifies what they did.

A worker imports this module, so it needs the standard library alone.
"""

from __future__ import annotations

import atexit
import importlib
import json
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from kofn.core.escape import escape_unprintable
from kofn.errors import InputError, WorldError
from kofn.parallel.worker import format_error
from kofn.problems.case import FILES, HEADERS, AttributeVerdict, CaseOutcome, Observation, read_files
from kofn.problems.matchers import CustomMatcher, matcher, truncate
from kofn.sandbox.fork_server import fork_server_for, stop_fork_server
from kofn.sandbox.process import ProcessResult
from kofn.sandbox.workspace import PathBlocked, Tree, UnreadableFile, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.problems.case import AttributeCheck, ProblemCase, WorkContext, WorkItem
    from kofn.sandbox.base import Sandbox
    from kofn.sandbox.process import ProgramLimits

MAX_REPORTED = 10_000  # characters of a value that a report holds; the whole is in a file
_TAIL = 200
_DEEPEST = 50
VERIFIER = "verifier"


class AuthorError(Exception):
    """The author's own code failed."""


def verify_case(case: ProblemCase, observation: Observation, *, with_verifier: bool = False) -> CaseOutcome:
    """The outcome of a case: every check, then the author's verifier.

    Where the author's own code fails, the attribute is not verified and `harness_error` says why.
    """
    process = observation.process
    verdicts: dict[str, AttributeVerdict] = {}
    harness_error = None
    for check in case.checks:
        name, weight, actual = check.attribute, check.weight, observation.attributes.get(check.attribute)
        try:
            correct, diff = _compare(check, actual, process)
            shown = None if isinstance(actual, UnreadableFile) else actual
            verdicts[name] = _verdict(name, correct, weight, check.expected, shown, diff)
        except AuthorError as problem:
            harness_error = harness_error or str(problem)
            verdicts[name] = AttributeVerdict(attribute=name, correct=None, weight=weight, diff=harness_error)
    if with_verifier and process.stopped is None:
        try:
            verdicts |= _run_verifier(case, observation)
        except AuthorError as problem:
            harness_error = harness_error or str(problem)
    elif with_verifier and not verdicts:
        verdicts["verifier"] = AttributeVerdict(attribute="verifier", correct=False, diff=_describe_ending(process))
    # the beginning of the output and the end of the errors are what says most
    kept = replace(process, output=process.output[:MAX_REPORTED], stderr=process.stderr[-MAX_REPORTED:])
    every, log = tuple(verdicts.values()), observation.log
    return CaseOutcome(key=case.key, verdicts=every, process=kept, harness_error=harness_error, log=log)


def _verdict(
    attribute: str, correct: bool | None, weight: float, expected: Any, actual: Any, diff: str
) -> AttributeVerdict:
    """The verdict with its values as a report holds them."""
    reported, whole_expected = _for_report(expected)
    found, whole = _for_report(actual)
    values: dict[str, Any] = {"expected": reported, "actual": found, "whole": whole, "whole_expected": whole_expected}
    return AttributeVerdict(attribute=attribute, correct=correct, weight=weight, diff=diff, **values)


def _compare(check: AttributeCheck, actual: Any, process: ProcessResult) -> tuple[bool, str]:
    if process.stopped is not None:
        return False, f"stopped: {process.stopped}"
    if isinstance(actual, UnreadableFile):
        return False, f"{_label(check.attribute)}: {actual.reason}"
    if actual is None:
        return False, _with_ending(f"{_label(check.attribute)} is not there", process)
    try:
        match = matcher(check.matcher, check.params)(check.expected, actual)
    except Exception as problem:
        raise AuthorError(f"matcher {check.matcher} failed: {type(problem).__name__}: {problem}"[:500]) from problem
    if match.correct:
        return True, ""
    # of a wrong status the diff says it all, unless the program wrote why
    complete = check.attribute == "status_code" and not process.stderr
    return False, match.diff if complete else _with_ending(match.diff, process)


def _label(attribute: str) -> str:
    kind, _, name = attribute.partition("/")
    return f"{kind.removesuffix('s')} {name}" if name else attribute


def _with_ending(diff: str, process: ProcessResult) -> str:
    ending = _describe_ending(process)
    return f"{diff}\n({ending})" if ending else diff


def _describe_ending(process: ProcessResult) -> str:
    """How a program came to an end that was not a good one, with the last line it wrote about it."""
    if process.stopped is not None:
        return f"stopped: {process.stopped}"
    if not process.status:
        return ""
    lines = process.stderr[-4 * _TAIL :].decode(errors="replace").strip().splitlines()
    signal = f", signal {process.status - 128}" if 128 < process.status < 160 else ""
    ending = f"exit status {process.status}{signal}"
    return f"{ending}; standard error ends: {escape_unprintable(lines[-1][-_TAIL:])}" if lines else ending


def _for_report(value: Any) -> tuple[Any, bytes | None]:
    """A value as a report holds it, and the whole of it where it was cut.

    >>> _for_report(b"ok"), _for_report(b"x" * 20_000)[0][-40:]
    (('ok', None), 'xxxx... (10,000 more characters)')
    """
    if isinstance(value, bytes):
        text = value.decode(errors="backslashreplace")
        whole = value
    elif isinstance(value, str):
        text, whole = value, value.encode(errors="surrogatepass")
    elif isinstance(value, (list, dict)):
        text = json.dumps(value, ensure_ascii=False)
        if len(text) <= MAX_REPORTED:
            return value, None
        whole = text.encode(errors="surrogatepass")
    else:
        return value, None
    return truncate(text, MAX_REPORTED), whole if len(text) > MAX_REPORTED else None


def _run_verifier(case: ProblemCase, observation: Observation) -> dict[str, AttributeVerdict]:
    """The verdicts of the author's `verify(case, actual)`: attribute -> bool, (bool, diff), a mapping, or None."""
    try:
        returned = importlib.import_module(VERIFIER).verify(dict(case.summary), _for_author(observation))
        if returned is not None and not isinstance(returned, Mapping):
            raise TypeError(f"it returned {returned!r:.100}: expected a mapping of attributes to true, false or none")
        return {str(name): _custom_verdict(_storable(str(name)), value) for name, value in (returned or {}).items()}
    except Exception as problem:
        reason = f"verifier.py failed on case {case.id!r}: {type(problem).__name__}: {problem}"
        raise AuthorError(reason[:500]) from problem


def _for_author(observation: Observation) -> dict[str, Any]:
    """What was observed, as the author's code gets it: text, and bytes where it is no UTF-8."""
    flat = {name: _text(value) for name, value in observation.attributes.items()}
    nested: dict[str, Any] = {name: value for name, value in flat.items() if "/" not in name}
    for prefix in (FILES, HEADERS):
        nested[prefix.rstrip("/")] = {n.removeprefix(prefix): v for n, v in flat.items() if n.startswith(prefix)}
    return {**nested, "seconds": observation.process.seconds}


def _text(value: Any) -> Any:
    try:
        return value.decode() if isinstance(value, bytes) else None if isinstance(value, UnreadableFile) else value
    except UnicodeDecodeError:
        return value


def _storable(value: Any, depth: int = 0) -> Any:
    """A value of the author's as files can hold it; what a program said may be in it.

    >>> _storable({"a": [1, float("nan")], "b": 10**30, "c": "\\ud800", "d": {2, 1}})
    {'a': [1, 'nan'], 'b': '1000000000000000000000000000000', 'c': '\\\\ud800', 'd': '{1, 2}'}
    """
    if value is None or isinstance(value, (bool, bytes)):
        return value
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    if depth < _DEEPEST and isinstance(value, Mapping):
        return {_storable(str(name)): _storable(one, depth + 1) for name, one in value.items()}
    if depth < _DEEPEST and isinstance(value, (list, tuple)):
        return [_storable(one, depth + 1) for one in value]
    try:
        return _storable(str(value)[:MAX_REPORTED])
    except Exception as problem:  # a __str__ of the author's, or one too deep
        return f"({type(value).__name__} that cannot be shown: {type(problem).__name__})"


def _custom_verdict(name: str, value: Any) -> AttributeVerdict:
    if value is None or isinstance(value, bool):
        return AttributeVerdict(attribute=name, correct=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], bool):
        return AttributeVerdict(attribute=name, correct=value[0], diff="" if value[0] else _storable(str(value[1])))
    fields: Mapping[str, Any] = dict(value)
    correct = fields.get("correct", fields.get("is_correct"))
    if correct is not None and not isinstance(correct, bool):
        raise TypeError(f"{name}: correct is {correct!r}: expected true, false or none")
    diff = "" if correct else _storable(str(fields.get("diff", "")))
    expected, actual = (_storable(fields.get(key)) for key in ("expected", "actual"))
    return _verdict(name, correct, float(fields.get("weight", 1.0)), expected, actual, diff)


def _observe(workspace: Workspace, context: WorkContext, item: WorkItem) -> Iterator[tuple[ProblemCase, Observation]]:
    """Run the cases of an item one after the other."""
    tree = context.trees[item.submission]
    entry = context.entries[item.submission]
    for number, case in enumerate(item.cases):
        try:
            workspace.folder.fill(tree if item.reset or number == 0 else None, case.files)
        except PathBlocked as problem:
            yield case, Observation(process=ProcessResult(stopped=str(problem)))
            continue
        limits = replace(context.limits, seconds=case.seconds)
        result = workspace.run((*entry, *case.args), limits=limits, env={**item.env, **case.env}, stdin=case.stdin)
        attributes = {"output": result.output, "stderr": result.stderr, "status_code": result.status}
        attributes |= read_files(workspace, case, limits)
        yield case, Observation(attributes=attributes, process=result)


_workspaces: dict[Any, Workspace] = {}
_installed: dict[str, Mapping[str, str]] = {}  # the folder of the author's code that is used, and the code


def run_item(context: WorkContext, item: WorkItem) -> list[CaseOutcome]:
    """The outcomes of the cases of an item, in order."""
    _install(context)
    workspace = workspace_for(context.sandbox, context.scratch)
    with_verifier = f"{VERIFIER}.py" in context.code
    observe = _observe
    if context.adapter == "api":
        from kofn.problems.api_adapter import observe  # its modules would make every other worker larger
    found = observe(workspace, context, item)
    return [verify_case(case, observation, with_verifier=with_verifier) for case, observation in found]


def try_author_code(context: WorkContext, custom: list[tuple[str, dict[str, Any]]]) -> str | None:
    """What is wrong with the author's code, in one line; None where all of it can be imported and called."""
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


SECONDS = 3.0  # as in the published evaluator
_EMPTY = Tree()

# What runs in the sandbox. The program is standard input, so that it has no file to look at; then input is empty.
# Python is started without what other packages want to do at every start, but with those packages.
_TEST_DRIVER = """
import contextlib, os, sys, builtins, _sitebuiltins
sys.path += sys.argv[1:]
del sys.argv[1:]
for name in ("exit", "quit"):
    setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
text = sys.stdin.buffer.read().decode()
word, _, program = text.partition("\\n")
tell = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name in ("__main__", "program"):
    sys.modules[name] = type(sys)(name)
exec(compile(program, "program.py", "exec"), sys.modules["program"].__dict__)
os.write(tell, ("\\n" + word).encode())
if "threading" in sys.modules:
    sys.modules["threading"]._shutdown()
for stream in (sys.stdout, sys.stderr):
    with contextlib.suppress(Exception):
        stream.flush()
os._exit(0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program with its tests, and how long it may take."""

    text: str
    seconds: float = SECONDS

    def key(self, sandbox: Sandbox) -> str:
        """A digest of the program and of where it runs: equal keys have equal results."""
        parts = (*sandbox.identity, str(self.seconds), self.text)
        return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()


def run_program(context: WorkContext, program: Program) -> CaseOutcome:
    """Run one program with its tests, which are the one attribute that its outcome has."""
    workspace = workspace_for(context.sandbox, context.scratch)
    workspace.folder.reset(_EMPTY)
    # its exit status a program can choose; a random word that is printed after the tests it can not
    word = token_hex(16)
    limits = replace(context.limits, seconds=program.seconds)
    stdin = f"{word}\n{program.text}".encode(errors="surrogatepass")  # half a character is an error of the program's
    result = _run_driver(workspace, stdin, limits)
    passed = result.stopped is None and word.encode() in result.output
    reason = "" if passed else result.stopped or _reason(result.status, result.stderr)
    verdict = AttributeVerdict(attribute="tests", correct=passed, diff=reason)
    process = ProcessResult(seconds=result.seconds)
    return CaseOutcome(key=program.key(context.sandbox), verdicts=(verdict,), process=process)


def _run_driver(workspace: Workspace, stdin: bytes, limits: ProgramLimits) -> ProcessResult:
    """In a fork of the fork server where there is one, else in an interpreter that is started for it."""
    if (server := fork_server_for(workspace)) is not None:
        try:
            return server.run(stdin, limits)
        except (WorldError, OSError):
            stop_fork_server(workspace)
            workspace.folder.reset(_EMPTY)
    command = ["python", "-I", "-S", "-c", _TEST_DRIVER, *workspace.sandbox.packages]
    return workspace.run(command, limits=limits, stdin=stdin)


def _reason(status: int | None, stderr: bytes) -> str:
    """Why a program did not pass: the last line of its errors, or how it ended."""
    lines = stderr[-4000:].decode(errors="replace").strip().splitlines()
    if lines and status:
        return lines[-1][:300]
    if status is not None and 128 < status < 160:
        return f"ended by signal {status - 128}"
    return "ended before its tests did" if not status else f"exit status {status}"
