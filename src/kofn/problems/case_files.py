"""The cases of a group: written in its checkpoint's file, in a file of their own, or as a folder each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from kofn.core.yaml_file import Yaml, parse_model
from kofn.errors import InputError, KofnError, UnknownName
from kofn.problems.case import AttributeCheck, HttpRequest, ProblemCase
from kofn.problems.config import CaseSpec, FromFile, VerifySpec
from kofn.problems.matchers import default_matcher, matcher
from kofn.problems.matchers.diff_text import truncate
from kofn.sandbox.work_folder import File, safe_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kofn.problems.config import Contents, GroupSpec, RequestSpec

CASE, EXPECTED, FILES = "case.yaml", "expected", "files"
_ONE_VALUE = ("output", "stderr", "status_code", "response")
_ONLY_CLI, _ONLY_API = ("output", "stderr"), ("response", "headers")
_MAX_STDIN = 2000
# which parts of a case are merged by name with the group's defaults, and which parts of those
_MERGED_BY_NAME: dict[str, Any] = {
    "env": {},
    "files": {},
    "expected": {"files": {}, "headers": {}},
    "verify": {"*": {}},
    "request": {"headers": {}, "query": {}},
}


class CheckpointSource(NamedTuple):
    """Where a checkpoint was read from: its folder, the file, and where in the file its groups stand."""

    folder: Path
    file: Yaml | None
    at: tuple[Any, ...]


class _WrittenCase(NamedTuple):
    """A case as somebody wrote it, and where."""

    value: Mapping[str, Any]
    folder: Path
    where: str
    file: Yaml | None = None
    at: tuple[Any, ...] = ()
    expected: Mapping[str, bytes] = {}

    @property
    def place(self) -> str:
        return format_place(self.file, self.at, self.where)


def load_cases(
    group: str,
    spec: GroupSpec,
    source: CheckpointSource,
    *,
    adapter: str,
    seconds: float,
    more: Sequence[Mapping[str, Any]],
    loader: str = "loader.py",
) -> tuple[ProblemCase, ...]:
    """The cases of a group; `more` are those that the author's `loader` gave. An id may be there once."""
    written = [*_written_cases(group, spec, source)]
    written += [_WrittenCase(row, source.folder, f"{loader}: {group}: case {i}") for i, row in enumerate(more, 1)]
    if not written and spec.cases is None and not (source.folder / group).is_dir():
        where = f"{source.folder / group} is not there, and neither `cases` nor {loader} gives any"
        place = format_place(source.file, (*source.at, group), source.folder)
        raise InputError(f"{place}: group {group!r}: no cases: {where}")
    found: dict[str, ProblemCase] = {}
    for written_case in written:
        case = _build_case(written_case, spec, adapter, seconds)
        if case.id in found:
            raise InputError(
                f"{written_case.place}: case {case.id!r} is there twice in group {group!r}: give each its own id"
            )
        found[case.id] = case
    _check_defaults(group, spec, source, found.values())
    return tuple(found.values())


def _check_defaults(group: str, spec: GroupSpec, source: CheckpointSource, cases: Iterable[ProblemCase]) -> None:
    """Refuse a default of `verify` that applies to no case: it names something else than its author means."""
    known = list(dict.fromkeys(check.attribute for case in cases for check in case.checks))
    for name in (spec.case_defaults.get("verify") or ()) if known else ():
        if not _is_expected(name, known):
            where = source.file.path if source.file else source.folder
            hint = f"no case expects anything of it; expected: {', '.join(known)}"
            unknown = UnknownName("verify attribute", name, known, hint)
            raise InputError(f"{where}: group {group!r}: case_defaults: {unknown}")


def _written_cases(group: str, spec: GroupSpec, source: CheckpointSource) -> Iterator[_WrittenCase]:
    if isinstance(spec.cases, list):
        at = (*source.at, group, "cases")
        name = str(source.file.path) if source.file else str(source.folder)
        for i, row in enumerate(spec.cases):
            yield _WrittenCase(row, source.folder, name, source.file, (*at, i))
        return
    if isinstance(spec.cases, str):
        path = source.folder / spec.cases
        if not path.exists():
            raise InputError(f"{path}: no such file: the cases of group {group!r} are to be there")
        yield from _in_folder(path) if path.is_dir() else _in_file(path)
        return
    folder = source.folder / group
    if folder.is_dir():
        yield from _in_folder(folder)


def _in_folder(folder: Path) -> Iterator[_WrittenCase]:
    for name in ("cases.yaml", "cases.yml", "cases.jsonl"):
        if (folder / name).is_file():
            yield from _in_file(folder / name)
    for path in sorted(folder.iterdir()):
        if (path / CASE).is_file():
            yield _case_folder(path)


def _in_file(path: Path) -> Iterator[_WrittenCase]:
    if path.suffix == ".jsonl":
        yield from _lines(path)
        return
    file = Yaml(path)
    if not isinstance(file.value, list):
        raise InputError(f"{path}: expected a list of cases")
    for i, row in enumerate(file.value):
        yield _WrittenCase(row, path.parent, str(path), file, (i,))


def _lines(path: Path) -> Iterator[_WrittenCase]:
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                yield _WrittenCase(json.loads(line), path.parent, f"{path}: line {number}")
            except json.JSONDecodeError as problem:
                what = f"not JSON: {problem.msg}, at column {problem.colno}"
                raise InputError(f"{path}: line {number}: {what}") from None
            except UnicodeDecodeError:
                raise InputError(f"{path}: line {number}: not UTF-8") from None


def _case_folder(folder: Path) -> _WrittenCase:
    """A folder a case: case.yaml, `files/` that go in, `expected/` with what comes out, `stdin` if it is long."""
    file = Yaml(folder / CASE)
    value = {} if file.value is None else file.value
    if not isinstance(value, dict):
        raise InputError(f"{folder / CASE}: expected a mapping")
    value = {"id": folder.name, **value}
    inputs = {p.relative_to(folder / FILES).as_posix(): p for p in _files_in(folder / FILES)}
    written = value.get("files") or {}
    value["files"] = {**{n: {"from": p.relative_to(folder).as_posix()} for n, p in inputs.items()}, **written}
    if "stdin" not in value and (folder / "stdin").is_file():
        value["stdin"] = {"from": "stdin"}
    return _WrittenCase(value, folder, str(folder / CASE), file, (), _expected_in(folder / EXPECTED))


def _files_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else []


def _expected_in(folder: Path) -> dict[str, bytes]:
    """What the folder `expected` says, by attribute: output, stderr, status_code, response, and files/..."""
    found = {}
    for path in _files_in(folder):
        name = path.relative_to(folder).as_posix()
        attribute = name if name.startswith("files/") else path.stem if "/" not in name else ""
        if not name.startswith("files/") and attribute not in _ONE_VALUE:
            raise UnknownName(f"file in {folder}:", name, [*_ONE_VALUE, "files/NAME"])
        if attribute in found:
            raise InputError(f"{path}: {attribute} is there in another file already")
        found[attribute] = path.read_bytes()
    return found


def _build_case(written: _WrittenCase, group: GroupSpec, adapter: str, seconds: float) -> ProblemCase:
    if not isinstance(written.value, Mapping):
        raise InputError(f"{written.place}: expected a mapping with the keys of a case")
    value = merge_cases(group.case_defaults, written.value)
    spec = parse_model(CaseSpec, value, written.where, written.file, written.at)
    place = f"{written.place}: case {spec.id!r}"
    try:
        return ProblemCase(
            key="",
            id=spec.id,
            args=spec.args,
            stdin=_bytes(spec.stdin, written.folder),
            files=tuple(_input(name, what, written.folder) for name, what in spec.files.items()),
            env=spec.env,
            request=_request(spec, adapter),
            checks=_checks(spec, written, adapter),
            seconds=spec.timeout or seconds,
            summary=_report_entry(spec),
        )
    except KofnError as problem:
        raise InputError(f"{place}: {problem}") from None


def format_place(file: Yaml | None, at: Sequence[Any], where: object) -> str:
    """A place in a file by its line, as far as that is known."""
    line = file.line(at) if file else None
    return f"{file.path if file else where}: line {line}" if line else str(where)


def merge_cases(
    below: Mapping[str, Any], above: Mapping[str, Any], known: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """One case over another: what has names (env, files, expected, verify, ...) is merged by name.

    Any other value of the upper one counts as it is, also where it is a mapping: an expected JSON object is one value.

    >>> merge_cases({"env": {"A": "1"}, "args": ["x"]}, {"env": {"B": "2"}, "args": []})
    {'env': {'A': '1', 'B': '2'}, 'args': []}
    >>> merge_cases({"expected": {"output": {"a": 1}}}, {"expected": {"output": {"b": 2}, "status_code": 0}})
    {'expected': {'output': {'b': 2}, 'status_code': 0}}
    """
    inside = _MERGED_BY_NAME if known is None else known
    found = dict(below)
    for key, value in above.items():
        deeper = inside.get(key, inside.get("*"))
        both = deeper is not None and isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = merge_cases(found[key], value, deeper) if both else value
    return found


def _bytes(what: Contents, folder: Path) -> bytes:
    if not isinstance(what, FromFile):
        return what.encode()
    try:
        return (folder / what.path).read_bytes()
    except OSError as problem:
        raise InputError(f"{folder / what.path}: {problem.strerror}") from None


def _input(name: str, what: Contents, folder: Path) -> File:
    mode = (
        (folder / what.path).stat().st_mode if isinstance(what, FromFile) and (folder / what.path).exists() else 0o644
    )
    return File(name=safe_name(name), mode=0o100000 | (mode & 0o777), data=_bytes(what, folder))


def _request(spec: CaseSpec, adapter: str) -> HttpRequest | None:
    if adapter == "cli":
        if spec.request is not None:
            raise InputError("request: the adapter of this problem is cli: give args and stdin, or adapter: api")
        return None
    if spec.request is None:
        raise InputError("request: there is none, and the adapter of this problem is api")
    if spec.args or spec.stdin:
        raise InputError("args and stdin are for the adapter cli: a server gets a request")
    if spec.env:
        raise InputError("env: a server is started once a group: give its environment to the checkpoint or the problem")
    return _as_request(spec.request)


def _as_request(spec: RequestSpec) -> HttpRequest:
    headers = dict(spec.headers)
    body = None if spec.body is None else spec.body.encode()
    if "json_" in spec.model_fields_set or spec.json_ is not None:
        body = json.dumps(spec.json_, ensure_ascii=False).encode()
        if "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = "application/json"
    path = quote(spec.path, safe="/?&=%+:,;@!$'()*~-._[]#")
    if spec.query:
        path += ("&" if "?" in path else "?") + urlencode(spec.query)
    return HttpRequest(method=spec.method, path=path, headers=tuple(headers.items()), body=body)


def _checks(spec: CaseSpec, written: _WrittenCase, adapter: str) -> tuple[AttributeCheck, ...]:
    """What is checked: all that is expected, and what `verify` names beside it."""
    expected: dict[str, Any] = {**written.expected, **spec.expected.attributes()}
    for name, one in spec.verify.items():
        if "expected" in one.model_fields_set:
            expected[name] = one.expected
        elif one.match is not None and is_custom(one.match) and name not in ("files", "headers"):
            expected.setdefault(name, None)  # the author's own function may need nothing
    for name in written.value.get("verify") or ():  # of the group's defaults, what does not apply to a case is left out
        if not _is_expected(name, expected):
            hint = f"nothing is expected of it; expected: {', '.join(expected) or 'nothing'}"
            raise UnknownName("verify attribute", name, list(expected), hint)
    rules = {name: spec.verify.get(name) or spec.verify.get(name.partition("/")[0]) for name in expected}
    checks = tuple(_check(name, value, rules[name] or VerifySpec()) for name, value in expected.items())
    for check in checks:
        _check_adapter(check.attribute, adapter)
    return checks


def _is_expected(name: str, known: Iterable[str]) -> bool:
    """Whether something is expected of an attribute, or of any file or header where it stands for all of them."""
    return name in known or (name in ("files", "headers") and any(one.startswith(f"{name}/") for one in known))


def _check_adapter(name: str, adapter: str) -> None:
    kind = name.partition("/")[0]
    if kind in (_ONLY_API if adapter == "cli" else _ONLY_CLI):
        raise InputError(f"expected {name}: the adapter {adapter} does not observe it")
    if kind not in (*_ONE_VALUE, "files", "headers"):
        raise UnknownName("attribute", name, [*_ONE_VALUE, "files/NAME", "headers/NAME"])
    if kind == "files":
        safe_name(name.removeprefix("files/"))


def _check(name: str, expected: Any, rule: VerifySpec) -> AttributeCheck:
    if name == "status_code" and isinstance(expected, bytes):
        try:
            expected = int(expected)
        except ValueError:
            raise InputError(f"expected/status_code: {expected[:40]!r} is not a whole number") from None
    matcher_name = rule.match or default_matcher(name, expected)
    try:
        built = matcher(matcher_name, rule.params)
        if not is_custom(matcher_name):  # the author's own function decides what it can be compared with
            built.check_expected(expected)
    except KofnError as problem:
        raise InputError(f"verify {name}: {problem}") from None
    return AttributeCheck(
        attribute=name, matcher=matcher_name, expected=expected, params=rule.params, weight=rule.weight
    )


def is_custom(match: str) -> bool:
    """Whether a matcher is a function of the author's: `module:function` or `package.module.function`."""
    return ":" in match or "." in match


def _report_entry(spec: CaseSpec) -> dict[str, Any]:
    """What a report says of a case."""
    stdin = spec.stdin if isinstance(spec.stdin, str) else f"(from {spec.stdin.path})"
    found: dict[str, Any] = {
        "id": spec.id,
        "description": spec.description,
        "args": list(spec.args),
        "stdin": truncate(stdin, _MAX_STDIN),
        "files": list(spec.files),
        "env": dict(spec.env),
        "request": None if spec.request is None else spec.request.model_dump(exclude_unset=True, by_alias=True),
    }
    return {name: value for name, value in found.items() if value}
