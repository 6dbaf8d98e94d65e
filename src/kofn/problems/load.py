"""Problems in folders: loaded, with groups of earlier checkpoints that must still pass, and created anew.

The cases of a group are in its checkpoint's file, in a file of their own, or a folder each. An error names the file,
the line and the field.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode

from kofn.core.format import MB
from kofn.core.yaml_file import Yaml, parse_model
from kofn.errors import InputError, KofnError, UnknownName
from kofn.problems.case import AttributeCheck, HttpRequest, ProblemCase
from kofn.problems.config import EVERY, CaseSpec, CheckpointSpec, FromFile, ProblemSpec, VerifySpec
from kofn.problems.matchers import default_matcher, is_custom, matcher, truncate
from kofn.problems.problem import CaseGroup, Checkpoint, Problem
from kofn.registry import load_module
from kofn.sandbox.process import ProgramLimits
from kofn.sandbox.workspace import File, read_tree, safe_name
from kofn.scoring.configuration import GroupType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kofn.problems.config import Contents, GroupSpec, RegressionSpec


CONFIG = "config.yaml"
LOADER = "loader"


def load_problem(path: Path | str) -> Problem:
    """The problem of a folder, every case read, every matcher made, every import resolved."""
    folder = Path(path)
    if folder.name == CONFIG and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        what = f"{'is a file' if folder.exists() else 'no such folder'}: expected a problem, a folder with {CONFIG}"
        raise InputError(f"{folder}: {what} (kofn new problem NAME makes one)")
    file = _yaml(folder / CONFIG)
    spec = parse_model(ProblemSpec, file.value, str(file.path), file)
    code = {path.name: _text(path) for path in sorted(folder.glob("*.py"))}  # the author's own, trusted
    loader = _loader(folder) if f"{LOADER}.py" in code else None
    checkpoints = [
        (_checkpoint(name, one, source, number, spec, loader), one, source)
        for number, (name, (one, source)) in enumerate(_checkpoint_specs(folder, file, spec).items(), 1)
    ]
    checkpoints.sort(key=lambda c: c[0].order)
    sizes = {"memory_mb": "memory", "file_mb": "file_size", "disk_mb": "disk", "output_mb": "output"}
    given = spec.limits.model_dump(exclude_none=True)
    limits = {sizes.get(name, name): value * MB if name in sizes else value for name, value in given.items()}
    return Problem(
        name=spec.name,
        folder=folder,
        entry=spec.entry,
        checkpoints=tuple(with_regressions(checkpoints)),
        version=spec.version,
        description=spec.description,
        tags=spec.tags,
        adapter=spec.adapter.kind,
        ready_path=spec.adapter.ready_path,
        ready_seconds=spec.adapter.ready_timeout,
        limits=ProgramLimits(seconds=spec.timeout, **limits),
        assets=_assets(folder, spec.static_assets),
        code={name: text for name, text in code.items() if name != f"{LOADER}.py"},
    )


def _yaml(path: Path) -> Yaml:
    if not path.is_file():
        raise InputError(f"{path}: no such file: a problem, and each of its checkpoints' folders, has a {CONFIG}")
    found = Yaml(path)
    if not isinstance(found.value, dict):
        raise InputError(f"{path}: expected a mapping")
    return found


def _checkpoint_specs(
    folder: Path, file: Yaml, spec: ProblemSpec
) -> dict[str, tuple[CheckpointSpec, CheckpointSource]]:
    """Every checkpoint with the place it was read from: a part of the problem's file, or a file of its own."""
    checkpoints, loader = spec.checkpoints, f"{folder / LOADER}.py"
    if not checkpoints:
        raise InputError(f"{file.path}: checkpoints: there is none: expected at least one")
    found: dict[str, tuple[CheckpointSpec, CheckpointSource]] = {}
    for name in checkpoints:
        own = folder / name
        if isinstance(checkpoints, dict):
            at = ("checkpoints", name, "groups")
            found[name] = (checkpoints[name], CheckpointSource(own if own.is_dir() else folder, file, at, loader))
            continue
        own_file = _yaml(own / CONFIG)
        one = parse_model(CheckpointSpec, own_file.value, str(own_file.path), own_file)
        found[name] = (one, CheckpointSource(own, own_file, ("groups",), loader))
        if checkpoints.count(name) > 1:
            raise InputError(f"{file.path}: checkpoints: {name!r} is there twice")
    return found


def _checkpoint(
    name: str, spec: CheckpointSpec, source: CheckpointSource, number: int, problem: ProblemSpec, loader: Any
) -> Checkpoint:
    groups = []
    for group_name, group in spec.groups.items():
        seconds = group.timeout or spec.timeout or problem.timeout
        rows = [] if loader is None else _from_loader(loader, source.loader, name, group_name)
        cases = load_cases(group_name, group, source, problem.adapter.kind, seconds, rows)
        groups.append(
            CaseGroup(
                name=group_name,
                type=GroupType(group.type),
                weight=group.weight,
                # a server is started once a group unless somebody asks for more
                isolated=problem.adapter.kind == "cli" if group.isolated is None else group.isolated,
                env={**problem.env, **spec.env},
                cases=cases,
            )
        )
    return Checkpoint(
        name=name,
        version=spec.version,
        order=number if spec.order is None else spec.order,
        specification=_specification(source, spec.specification),
        groups=tuple(groups),
    )


def _specification(source: CheckpointSource, text: str) -> str:
    """The text, or what stands in the file that it names."""
    if not text or "\n" in text or len(text) > 200:
        return text
    path = source.folder / text
    if path.is_file():
        return _text(path)
    if path.suffix in (".md", ".txt"):
        raise InputError(f"{path}: no such file: `specification` names it")
    return text


def _assets(folder: Path, paths: Mapping[str, str]) -> tuple[File, ...]:
    found: list[File] = []
    for name, path in paths.items():
        source = folder / path
        try:
            tree = read_tree(source, name=safe_name(name)) if source.is_file() else read_tree(source)
            inside = safe_name(name) + "/" if source.is_dir() else ""
        except InputError as problem:
            raise InputError(f"{folder / CONFIG}: static_assets: {problem}") from None
        found += [replace(file, name=inside + file.name) for file in tree.files]
    return tuple(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"{path}: cannot be read: {getattr(problem, 'strerror', None) or problem}") from None


def _loader(folder: Path) -> Any:
    """`cases(checkpoint, group)` of loader.py, which may import what is beside it."""
    path = folder / f"{LOADER}.py"
    sys.path.insert(0, str(folder.resolve()))  # the loader may import what is beside it
    try:
        module = load_module(path, f"kofn_{LOADER}_{folder.name}")
    except Exception as problem:
        raise InputError(f"{path}: {type(problem).__name__}: {problem}") from problem
    finally:
        sys.path.remove(str(folder.resolve()))
    if not callable(getattr(module, "cases", None)):
        raise InputError(f"{path}: there is no function `cases(checkpoint, group)` in it")
    return module.cases


def _from_loader(loader: Any, path: str, checkpoint: str, group: str) -> list[dict[str, Any]]:
    """What the author's loader gives for a group, as JSON would hold it."""
    place = f"{path}: cases({checkpoint!r}, {group!r})"
    try:
        rows = list(loader(checkpoint, group) or ())
    except Exception as problem:
        raise InputError(f"{place}: {type(problem).__name__}: {problem}") from problem
    if not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{place}: expected mappings with the keys of a case")
    try:
        # by way of JSON, so that a case is the same as one from a file, and its key too
        return [json.loads(json.dumps(dict(row), allow_nan=False)) for row in rows]
    except (TypeError, ValueError) as problem:
        raise InputError(f"{place}: expected values that JSON can hold: {problem}") from None


def with_regressions(read: Sequence[tuple[Checkpoint, CheckpointSpec, CheckpointSource]]) -> Iterator[Checkpoint]:
    """The checkpoints, each with what it imports after its own groups.

    A checkpoint gives its own groups, not those it imported itself, so that `*` brings each of them once.
    """
    for number, (checkpoint, checkpoint_spec, source) in enumerate(read):
        groups = {group.name: group for group in checkpoint.groups}  # `read` has the checkpoints without imports
        counts = []
        for i, spec in enumerate(checkpoint_spec.regressions):
            at = (*source.at[:-1], "regressions", i)
            place = f"{format_place(source.file, at, source.folder)}: {checkpoint.name}: regressions[{i}]"
            before = len(groups)
            for group in _imported(spec, [c for c, _, _ in read[:number]], [c for c, _, _ in read], place):
                if group.name in groups:
                    raise InputError(f"{place}: group {group.name!r} is there already: change name_template")
                groups[group.name] = group
            counts.append(len(groups) - before)
        yield replace(checkpoint, groups=tuple(groups.values()), imports=tuple(counts))


def _imported(
    spec: RegressionSpec, earlier: list[Checkpoint], everyone: list[Checkpoint], place: str
) -> Iterator[CaseGroup]:
    by_name = {checkpoint.name: checkpoint for checkpoint in earlier}
    names = list(by_name) if EVERY in spec.checkpoints else spec.checkpoints
    for name in names:
        if name not in by_name:
            if any(c.name == name for c in everyone):
                wrong = f"{name!r} is not earlier: a regression is of a checkpoint with a lower order"
                raise InputError(f"{place}: {wrong}")
            raise InputError(f"{place}: {UnknownName('checkpoint', name, list(by_name), 'there is no earlier one')}")
    groups = [(by_name[name], group) for name in names for group in by_name[name].groups]
    known = [group.name for _, group in groups]
    for name in spec.groups:
        if name not in known:
            raise InputError(f"{place}: {UnknownName('group', name, known)}")
    excludable = {*known, *(f"{group.name}/{case.id}" for _, group in groups for case in group.cases)}
    for name in spec.exclude:
        if name not in excludable:
            unknown = UnknownName("group or case", name, sorted(excludable), "expected GROUP or GROUP/CASE")
            raise InputError(f"{place}: exclude: {unknown}")
    for checkpoint, group in groups:
        if (spec.groups and group.name not in spec.groups) or group.name in spec.exclude:
            continue
        if spec.type_filter and group.type.value not in spec.type_filter:
            continue
        yield replace(
            group,
            name=spec.name_template.format(checkpoint=checkpoint.name, group=group.name),
            type=GroupType.REGRESSION,
            cases=tuple(case for case in group.cases if f"{group.name}/{case.id}" not in spec.exclude),
            original_checkpoint=checkpoint.name,
            original_group=group.name,
        )


ADAPTERS = ("cli", "api")
_TEMPLATES = Path(__file__).with_name("templates")
_NAME = "__NAME__"
_TEXT = ".txt"  # Python of a template has it behind .py, so that nothing takes it for a module of kofn


def new_problem(folder: Path, *, adapter: str = "cli") -> list[Path]:
    """Write a problem, named as its folder, and return its files. A folder that is there is refused, empty or not."""
    if adapter not in ADAPTERS:
        raise UnknownName("adapter", adapter, list(ADAPTERS))
    name = folder.resolve().name
    if not re.fullmatch(r"[\w.-]+", name):
        raise InputError(f"{name!r} cannot name a problem: expected letters, digits, _, - and .")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise InputError(f"{folder}: is there already: give a name that is free") from None
    written = []
    for template in sorted(path for path in (_TEMPLATES / adapter).rglob("*") if path.is_file()):
        path = folder / template.relative_to(_TEMPLATES / adapter)
        target = path.with_suffix("") if path.name.endswith(f".py{_TEXT}") else path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(template.read_text(encoding="utf-8").replace(_NAME, name), encoding="utf-8")
        written.append(target)
    return written


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
    """Where a checkpoint was read from: its folder, the file, where in it its groups stand, and the author's loader."""

    folder: Path
    file: Yaml
    at: tuple[Any, ...]
    loader: str


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
    group: str, spec: GroupSpec, source: CheckpointSource, adapter: str, seconds: float, more: list[dict[str, Any]]
) -> tuple[ProblemCase, ...]:
    """The cases of a group; `more` are those that the author's loader gave. An id may be there once."""
    written = [*_written_cases(group, spec, source)]
    place = f"{source.loader}: {group}"
    written += [_WrittenCase(row, source.folder, f"{place}: case {i}") for i, row in enumerate(more, 1)]
    if not written and spec.cases is None and not (source.folder / group).is_dir():
        where = f"{source.folder / group} is not there, and neither `cases` nor {source.loader} gives any"
        place = format_place(source.file, (*source.at, group), source.folder)
        raise InputError(f"{place}: group {group!r}: no cases: {where}")
    found: dict[str, ProblemCase] = {}
    for written_case in written:
        case = _build_case(written_case, spec, adapter, seconds)
        if case.id in found:
            twice = f"case {case.id!r} is there twice in group {group!r}: give each its own id"
            raise InputError(f"{written_case.place}: {twice}")
        found[case.id] = case
    # a default of `verify` that applies to no case names something else than its author means
    known = list(dict.fromkeys(check.attribute for case in found.values() for check in case.checks))
    for name in (spec.case_defaults.get("verify") or ()) if known else ():
        if not _is_expected(name, known):
            hint = f"no case expects anything of it; expected: {', '.join(known)}"
            unknown = UnknownName("verify attribute", name, known, hint)
            raise InputError(f"{source.file.path}: group {group!r}: case_defaults: {unknown}")
    return tuple(found.values())


def _written_cases(group: str, spec: GroupSpec, source: CheckpointSource) -> Iterator[_WrittenCase]:
    if isinstance(spec.cases, list):
        for i, row in enumerate(spec.cases):
            at = (*source.at, group, "cases", i)
            yield _WrittenCase(row, source.folder, str(source.file.path), source.file, at)
        return
    path = source.folder / (group if spec.cases is None else spec.cases)
    if path.is_dir():
        for name in ("cases.yaml", "cases.yml", "cases.jsonl"):
            if (path / name).is_file():
                yield from _in_file(path / name)
        for folder in sorted(path.iterdir()):
            if (folder / CASE).is_file():
                yield _case_folder(folder)
    elif spec.cases is not None:
        if not path.exists():
            raise InputError(f"{path}: no such file: the cases of group {group!r} are to be there")
        yield from _in_file(path)


def _in_file(path: Path) -> Iterator[_WrittenCase]:
    if path.suffix != ".jsonl":
        file = Yaml(path)
        if not isinstance(file.value, list):
            raise InputError(f"{path}: expected a list of cases")
        for i, row in enumerate(file.value):
            yield _WrittenCase(row, path.parent, str(path), file, (i,))
        return
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            where = f"{path}: line {number}"
            try:
                yield _WrittenCase(json.loads(line), path.parent, where)
            except json.JSONDecodeError as problem:
                raise InputError(f"{where}: not JSON: {problem.msg}, at column {problem.colno}") from None
            except UnicodeDecodeError:
                raise InputError(f"{where}: not UTF-8") from None


def _case_folder(folder: Path) -> _WrittenCase:
    """A folder a case: case.yaml, `files/` that go in, `expected/` with what comes out, `stdin` if it is long."""
    file = Yaml(folder / CASE)
    value = {} if file.value is None else file.value
    if not isinstance(value, dict):
        raise InputError(f"{folder / CASE}: expected a mapping")
    value = {"id": folder.name, **value}
    inputs = [path.relative_to(folder / FILES).as_posix() for path in _files_in(folder / FILES)]
    value["files"] = {**{name: {"from": f"{FILES}/{name}"} for name in inputs}, **(value.get("files") or {})}
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
        raise InputError(f"{written.place}: case {spec.id!r}: {problem}") from None


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
    path = folder / what.path if isinstance(what, FromFile) else None
    mode = path.stat().st_mode if path is not None and path.exists() else 0o644
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
    request = spec.request
    headers = dict(request.headers)
    body = None if request.body is None else request.body.encode()
    if "json_" in request.model_fields_set:
        body = json.dumps(request.json_, ensure_ascii=False).encode()
        if "content-type" not in {name.lower() for name in headers}:
            headers["Content-Type"] = "application/json"
    path = quote(request.path, safe="/?&=%+:,;@!$'()*~-._[]#")
    if request.query:
        path += ("&" if "?" in path else "?") + urlencode(request.query)
    return HttpRequest(method=request.method, path=path, headers=tuple(headers.items()), body=body)


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
    for name in expected:
        kind = name.partition("/")[0]
        if kind in (_ONLY_API if adapter == "cli" else _ONLY_CLI):
            raise InputError(f"expected {name}: the adapter {adapter} does not observe it")
        if kind not in (*_ONE_VALUE, "files", "headers"):
            raise UnknownName("attribute", name, [*_ONE_VALUE, "files/NAME", "headers/NAME"])
        if kind == "files":
            safe_name(name.removeprefix("files/"))
    return checks


def _is_expected(name: str, known: Iterable[str]) -> bool:
    """Whether something is expected of an attribute, or of any file or header where it stands for all of them."""
    return name in known or (name in ("files", "headers") and any(one.startswith(f"{name}/") for one in known))


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
    weight, params = rule.weight, rule.params
    return AttributeCheck(attribute=name, matcher=matcher_name, expected=expected, params=params, weight=weight)


def _report_entry(spec: CaseSpec) -> dict[str, Any]:
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
