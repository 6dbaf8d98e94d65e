"""Submissions, the programs that are verified, and the work items made of their cases."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError, UnknownName
from kofn.problems.case import WorkContext, WorkItem
from kofn.sandbox.work_folder import Tree, merge_trees, read_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.problems.problem import CaseGroup, Checkpoint, Problem
    from kofn.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program that is verified: its name, its path and its files.

    `unusable` says why it cannot even be run; then every case of it fails.
    """

    name: str
    path: Path
    tree: Tree = field(repr=False)
    unusable: str | None = None


def load_submissions(
    problem: Problem, paths: Sequence[Path], names: Sequence[str], *, packed: bool = False
) -> list[Submission]:
    """The submissions of these paths, under these names."""
    found = []
    for name, path in zip(names, paths, strict=True):
        if path.is_file() and problem.main_file is None:
            entry = " ".join(problem.entry)
            raise InputError(f"{path}: a single file, and `{entry}` names none that it could be: give a folder")
        if not path.exists():
            raise InputError(f"{path}: no such file or folder: expected a submission")
        found.append(_load_submission(problem, name, path, packed=packed))
    return found


def _load_submission(problem: Problem, name: str, path: Path, *, packed: bool) -> Submission:
    try:
        tree = read_tree(path, name=problem.main_file, most=problem.limits.disk)
    except InputError as reason:
        digest = sha256(json.dumps(str(reason)).encode()).hexdigest()  # so that another reason is another submission
        return Submission(name=name, path=path, tree=Tree(digest=digest), unusable=str(reason))
    return Submission(name=name, path=path, tree=merge_trees([tree.files, problem.assets], packed=packed))


def submission_warning(problem: Problem, submission: Submission) -> CodedWarning | None:
    """What to say of a submission that cannot be run, or lacks the file that is; None where all is well."""
    if submission.unusable is not None:
        return CodedWarning.of("submission-unusable", submission.name, reason=submission.unusable)
    main = problem.main_file
    if main is None or any(file.name == main for file in submission.tree.files):
        return None
    entry = " ".join(problem.entry)
    folder = str(submission.path)
    return CodedWarning.of("main-file-missing", submission.name, file=main, folder=folder, command=entry)


def check_entry(problem: Problem, sandbox: Sandbox) -> None:
    """Refuse a problem whose command is no program of this machine; one of the submission's own is not looked for."""
    first = problem.entry[0]
    if first in ("python", "python3") or (os.sep in first and not first.startswith(os.sep)):
        return
    folders = os.pathsep.join(sandbox.search_path)
    if shutil.which(first, path=folders) is None:
        raise InputError(
            f"{problem.folder}: entry: there is no program {first!r} in {folders}: correct it, install it, or show "
            "where it is (--show PATH, and the whole path in the entry)"
        )


def submission_names(paths: Sequence[Path], known: Mapping[str, str] | None = None) -> list[str]:
    """Short names that tell paths apart: the last part, with those before it where that is not enough.

    `known` has the names that paths got before: they keep them, and no other path gets one of these.

    >>> from pathlib import Path
    >>> submission_names([Path("a/sol"), Path("b/sol"), Path("c.py")])
    ['a-sol', 'b-sol', 'c']
    >>> submission_names([Path("/b/sol"), Path("/a/sol")], {"/a/sol": "sol"})
    ['b-sol', 'sol']
    """
    known = known or {}
    resolved = [path.resolve() for path in paths]
    if len(set(resolved)) < len(resolved):
        twice = next(path for path in paths if resolved.count(path.resolve()) > 1)
        raise InputError(f"{twice}: there twice: give every submission once (--repeat runs its cases several times)")
    parts = [[*path.parent.parts[1:], path.stem if path.suffix == ".py" else path.name] for path in resolved]
    names = [known.get(str(path)) or part[-1] for path, part in zip(resolved, parts, strict=True)]
    taken = {name.lower() for name in known.values()}
    kept = [str(path) in known for path in resolved]
    for depth in range(2, max(map(len, parts), default=1) + 1):
        folded = [name.lower() for name in names]
        clash = [folded.count(name) > 1 or name in taken for name in folded]
        longer = [clashes and not keep for clashes, keep in zip(clash, kept, strict=True)]
        names = ["-".join(p[-depth:]) if more else name for name, p, more in zip(names, parts, longer, strict=True)]
    if len(set(names)) < len(names):
        raise InputError(f"two submissions would both be called {max(names, key=names.count)}: rename a folder")
    # `set` and `outputs` are folders of the output directory itself
    return [f"submission-{name}" if name in ("set", "outputs") else name for name in names]


def select_cases(checkpoints: Sequence[Checkpoint], groups: Sequence[str], cases: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints with only these groups and cases, where any are named; those left with nothing go.

    A case is named by its id, or as GROUP/ID.
    """
    known = [group.name for c in checkpoints for group in c.groups]
    ids = [name for c in checkpoints for g in c.groups for case in g.cases for name in (case.id, f"{g.name}/{case.id}")]
    for kind, names, known_names in (("group", groups, known), ("case", cases, ids)):
        for name in names:
            if name not in known_names:
                hint = f"known: {', '.join(dict.fromkeys(known_names))[:200]}"
                raise UnknownName(kind, name, known_names, hint)
    kept = [
        replace(c, groups=tuple(filter(None, (_select_in_group(g, groups, cases) for g in c.groups))))
        for c in checkpoints
    ]
    selected = [c for c in kept if c.groups]
    if not selected:
        raise InputError("no case is left: the group and the case that were asked for do not go together")
    return selected


def _select_in_group(group: CaseGroup, groups: Sequence[str], cases: Sequence[str]) -> CaseGroup | None:
    if groups and group.name not in groups:
        return None
    if not cases:
        return group
    selected = tuple(case for case in group.cases if case.id in cases or f"{group.name}/{case.id}" in cases)
    if selected and not group.isolated:
        last = max(group.cases.index(case) for case in selected)
        selected = group.cases[: last + 1]  # they share a work folder, so earlier cases have a part in the result
    return replace(group, cases=selected) if selected else None


def work_context(
    problem: Problem, submissions: Sequence[Submission], sandbox: Sandbox, scratch: str | None
) -> WorkContext:
    """The context that all items share."""
    return WorkContext(
        trees=tuple(one.tree for one in submissions),
        entries=(problem.entry,) * len(submissions),
        adapter=problem.adapter,
        limits=problem.limits,
        sandbox=sandbox,
        ready_path=problem.ready_path,
        ready_seconds=problem.ready_seconds,
        code=problem.code,
        scratch=scratch,
    )


def work_items(
    problem: Problem, submission: int, tree: Tree, group: CaseGroup, *, repeats: int, sandbox: Sandbox
) -> list[WorkItem]:
    """The items of a group: one per case where cases are isolated, else one with all of them; each `repeats` times."""
    # the key of a finished case in the store: a change of anything here runs the case again
    common = {
        "tree": tree.digest,
        "entry": problem.entry,
        "adapter": [problem.adapter, problem.ready_path, problem.ready_seconds],
        "limits": asdict(replace(problem.limits, seconds=0)),
        "code": problem.code,
        "env": dict(group.env),
        "isolated": group.isolated,
        "sandbox": sandbox.identity,
    }
    base = _digest(common)
    items = []
    for repeat in range(repeats):
        cases, before = [], base
        for case in group.cases:
            # all of a case that can change its outcome, by the names of its fields: renaming one changes all keys
            identity = {name: value for name, value in asdict(case).items() if name not in ("key", "summary")}
            key = _digest([base if group.isolated else before, identity, repeat])
            before = key  # a case that is not isolated depends on those before it
            cases.append(replace(case, key=key))
        parts = [(case,) for case in cases] if group.isolated else [tuple(cases)]
        items += [
            WorkItem(submission=submission, group=group.name, env=group.env, cases=part, reset=group.isolated)
            for part in parts
            if part
        ]
    return items


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_as_text, ensure_ascii=True)
    return sha256(text.encode()).hexdigest()


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": sha256(value).hexdigest()}
    return repr(value)
