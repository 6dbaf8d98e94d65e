"""Problems in folders: loaded, with groups of earlier checkpoints that must still pass, and created anew.

An error names the file, the line and the field.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.format import MB
from kofn.core.yaml_file import Yaml, parse_model
from kofn.errors import InputError, UnknownName
from kofn.problems.case_files import CheckpointSource, format_place, load_cases
from kofn.problems.config import EVERY, CheckpointSpec, ProblemSpec
from kofn.problems.problem import CaseGroup, Checkpoint, Problem
from kofn.sandbox.program import ProgramLimits
from kofn.sandbox.work_folder import read_tree, safe_name
from kofn.scoring.configuration import GroupType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.problems.config import LimitsSpec, RegressionSpec
    from kofn.sandbox.work_folder import File

    Read = tuple[Checkpoint, CheckpointSpec, CheckpointSource]

CONFIG = "config.yaml"
LOADER = "loader"


def load_problem(path: Path | str) -> Problem:
    """The problem of a folder, every case read, every matcher made, every import resolved."""
    folder = Path(path)
    if folder.name == CONFIG and folder.is_file():
        folder = folder.parent
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "no such folder"
        raise InputError(
            f"{folder}: {what}: expected a problem, a folder with {CONFIG} (kofn new problem NAME makes one)"
        )
    file = _yaml(folder / CONFIG)
    spec = parse_model(ProblemSpec, file.value, str(file.path), file)
    code = {path.name: _text(path) for path in sorted(folder.glob("*.py"))}  # the author's own, trusted
    loader = _loader(folder) if f"{LOADER}.py" in code else None
    checkpoints = [
        _checkpoint(name, one, number, folder, spec, loader)
        for number, (name, one) in enumerate(_checkpoint_specs(folder, file, spec).items(), 1)
    ]
    checkpoints.sort(key=lambda c: c[0].order)
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
        limits=_limits(spec.limits, spec.timeout),
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
    checkpoints = spec.checkpoints
    if not checkpoints:
        raise InputError(f"{file.path}: checkpoints: there is none: expected at least one")
    found: dict[str, tuple[CheckpointSpec, CheckpointSource]] = {}
    if isinstance(checkpoints, dict):
        for name, one in checkpoints.items():
            own = folder / name if (folder / name).is_dir() else folder
            found[name] = (one, CheckpointSource(own, file, ("checkpoints", name, "groups")))
        return found
    for name in checkpoints:
        own_file = _yaml(folder / name / CONFIG)
        one = parse_model(CheckpointSpec, own_file.value, str(own_file.path), own_file)
        found[name] = (one, CheckpointSource(folder / name, own_file, ("groups",)))
        if name in checkpoints[checkpoints.index(name) + 1 :]:
            raise InputError(f"{file.path}: checkpoints: {name!r} is there twice")
    return found


def _checkpoint(
    name: str,
    one: tuple[CheckpointSpec, CheckpointSource],
    number: int,
    folder: Path,
    problem: ProblemSpec,
    loader: Any,
) -> tuple[Checkpoint, CheckpointSpec, CheckpointSource]:
    """A checkpoint with its own groups, what it wants to import, and where that was said."""
    spec, source = one
    groups = []
    for group_name, group in spec.groups.items():
        seconds = group.timeout or spec.timeout or problem.timeout
        rows = _from_loader(loader, folder, name, group_name)
        cases = load_cases(
            group_name,
            group,
            source,
            adapter=problem.adapter.kind,
            seconds=seconds,
            more=rows,
            loader=f"{folder / LOADER}.py",
        )
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
    checkpoint = Checkpoint(
        name=name,
        version=spec.version,
        order=number if spec.order is None else spec.order,
        specification=_specification(source, spec.specification),
        groups=tuple(groups),
    )
    return checkpoint, spec, source


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


def _limits(spec: LimitsSpec, seconds: float) -> ProgramLimits:
    usual = ProgramLimits(seconds=seconds)
    named = {"memory": spec.memory_mb, "file_size": spec.file_mb, "disk": spec.disk_mb, "output": spec.output_mb}
    sizes = {name: value * MB for name, value in named.items() if value is not None}
    counts = {name: getattr(spec, name) for name in ("files", "processes") if getattr(spec, name) is not None}
    return replace(usual, **sizes, **counts)


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
    spec = importlib.util.spec_from_file_location(f"kofn_{LOADER}_{folder.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(folder.resolve()))  # the loader may import what is beside it
    try:
        spec.loader.exec_module(module)
    except Exception as problem:
        raise InputError(f"{path}: {type(problem).__name__}: {problem}") from problem
    finally:
        sys.path.remove(str(folder.resolve()))
    if not callable(getattr(module, "cases", None)):
        raise InputError(f"{path}: there is no function `cases(checkpoint, group)` in it")
    return module.cases


def _from_loader(loader: Any, folder: Path, checkpoint: str, group: str) -> list[dict[str, Any]]:
    """What the author's loader gives for a group, as JSON would hold it."""
    if loader is None:
        return []
    place = f"{folder / LOADER}.py: cases({checkpoint!r}, {group!r})"
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


def with_regressions(read: Sequence[Read]) -> Iterator[Checkpoint]:
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
    checkpoints = (
        earlier if EVERY in spec.checkpoints else [_earlier(n, earlier, everyone, place) for n in spec.checkpoints]
    )
    known = [group.name for checkpoint in checkpoints for group in checkpoint.groups]
    for name in spec.groups:
        if name not in known:
            raise InputError(f"{place}: {UnknownName('group', name, known)}")
    left_out = _left_out(spec, checkpoints, place)
    for checkpoint in checkpoints:
        for group in checkpoint.groups:
            if (spec.groups and group.name not in spec.groups) or group.name in left_out:
                continue
            if spec.type_filter and group.type.value not in spec.type_filter:
                continue
            yield replace(
                group,
                name=spec.name_template.format(checkpoint=checkpoint.name, group=group.name),
                type=GroupType.REGRESSION,
                cases=tuple(case for case in group.cases if f"{group.name}/{case.id}" not in left_out),
                original_checkpoint=checkpoint.name,
                original_group=group.name,
            )


def _earlier(name: str, earlier: list[Checkpoint], everyone: list[Checkpoint], place: str) -> Checkpoint:
    if (found := next((c for c in earlier if c.name == name), None)) is not None:
        return found
    if any(c.name == name for c in everyone):
        raise InputError(f"{place}: {name!r} is not earlier: a regression is of a checkpoint with a lower order")
    raise InputError(
        f"{place}: {UnknownName('checkpoint', name, [c.name for c in earlier], 'there is no earlier one')}"
    )


def _left_out(spec: RegressionSpec, checkpoints: list[Checkpoint], place: str) -> set[str]:
    """The names in `exclude`: groups, and cases as GROUP/CASE."""
    groups = [group for checkpoint in checkpoints for group in checkpoint.groups]
    known = {group.name for group in groups} | {f"{group.name}/{case.id}" for group in groups for case in group.cases}
    for name in spec.exclude:
        if name not in known:
            raise InputError(
                f"{place}: exclude: {UnknownName('group or case', name, sorted(known), 'expected GROUP or GROUP/CASE')}"
            )
    return set(spec.exclude)


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
