"""What is to be run: every case of every submission, with a key that says exactly what it is."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.folder import joined, tree_of
from kofn.checkpoint.work import Context, Item, Tree
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kofn.checkpoint.problem import Checkpoint, Group, Problem
    from kofn.checkpoint.sandbox import Sandbox
    from kofn.checkpoint.work import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program that is verified: what it is called, where it is, and its files.

    `unusable` says why it cannot even be run; then every case of it fails.
    """

    name: str
    path: Path
    tree: Tree = field(repr=False)
    unusable: str | None = None


def submissions_of(
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
        found.append(_submission(problem, name, path, packed=packed))
    return found


def _submission(problem: Problem, name: str, path: Path, *, packed: bool) -> Submission:
    try:
        tree = tree_of(path, name=problem.main_file, most=problem.limits.disk)
    except InputError as reason:
        return Submission(name=name, path=path, tree=Tree(digest=_digest(str(reason))), unusable=str(reason))
    return Submission(name=name, path=path, tree=joined([tree.files, problem.assets], packed=packed))


def warning_of(problem: Problem, submission: Submission) -> str | None:
    """What to say of a submission that cannot be run, or lacks the file that is; None where all is well."""
    if submission.unusable is not None:
        return f"{submission.name}: every case fails: {submission.unusable}"
    wanted = problem.main_file
    if wanted is None or any(file.name == wanted for file in submission.tree.files):
        return None
    return f"{submission.name}: there is no {wanted} in {submission.path}, which `{' '.join(problem.entry)}` runs"


def check_entry(problem: Problem, sandbox: Sandbox) -> None:
    """Refuse a problem whose command is no program of this machine; one of the submission's own is not looked for."""
    first = problem.entry[0]
    if first in ("python", "python3") or (os.sep in first and not first.startswith(os.sep)):
        return
    folders = os.pathsep.join(sandbox.environment_path)
    if shutil.which(first, path=folders) is None:
        raise InputError(
            f"{problem.folder}: entry: there is no program {first!r} in {folders}: correct it, install it, or show "
            "where it is (--show PATH, and the whole path in the entry)"
        )


def names_of(paths: Sequence[Path], known: Mapping[str, str] | None = None) -> list[str]:
    """Short names that tell paths apart: the last part, with those before it where that is not enough.

    `known` has the names that paths got before: they keep them, and no other path gets one of these.

    >>> from pathlib import Path
    >>> names_of([Path("a/sol"), Path("b/sol"), Path("c.py")])
    ['a-sol', 'b-sol', 'c']
    >>> names_of([Path("/b/sol"), Path("/a/sol")], {"/a/sol": "sol"})
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
        again = [wrong and not keep for wrong, keep in zip(clash, kept, strict=True)]
        names = ["-".join(p[-depth:]) if twice else name for name, p, twice in zip(names, parts, again, strict=True)]
    if len(set(names)) < len(names):
        raise InputError(f"two submissions would both be called {max(names, key=names.count)}: rename a folder")
    return [f"submission-{name}" if name in ("set", "outputs") else name for name in names]


def selected(checkpoints: Sequence[Checkpoint], groups: Sequence[str], cases: Sequence[str]) -> list[Checkpoint]:
    """The checkpoints with only these groups and cases, where any are named; those left with nothing go.

    A case is named by its id, or as GROUP/ID.
    """
    known = [group.name for c in checkpoints for group in c.groups]
    ids = [name for c in checkpoints for g in c.groups for job in g.cases for name in (job.id, f"{g.name}/{job.id}")]
    for kind, wanted, there in (("group", groups, known), ("case", cases, ids)):
        for name in wanted:
            if name not in there:
                raise UnknownName(kind, name, there, f"known: {', '.join(dict.fromkeys(there))[:200]}")
    kept = [replace(c, groups=tuple(filter(None, (_part(g, groups, cases) for g in c.groups)))) for c in checkpoints]
    found = [c for c in kept if c.groups]
    if not found:
        raise InputError("no case is left: the group and the case that were asked for do not go together")
    return found


def _part(group: Group, groups: Sequence[str], cases: Sequence[str]) -> Group | None:
    if groups and group.name not in groups:
        return None
    if not cases:
        return group
    chosen = tuple(job for job in group.cases if job.id in cases or f"{group.name}/{job.id}" in cases)
    if chosen and not group.isolated:
        last = max(group.cases.index(job) for job in chosen)
        chosen = group.cases[: last + 1]  # what came before has a part in it
    return replace(group, cases=chosen) if chosen else None


def context_of(problem: Problem, submissions: Sequence[Submission], sandbox: Sandbox, scratch: str | None) -> Context:
    """What all items share."""
    return Context(
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


def items_of(
    problem: Problem, submission: int, tree: Tree, group: Group, checkpoint: str, *, repeats: int, sandbox: Sandbox
) -> list[Item]:
    """The items of a group: a case each where cases are alone, else all of them in order; all as often as asked."""
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
    found = []
    for repeat in range(repeats):
        jobs, before = [], base
        for job in group.cases:
            key = _digest([base if group.isolated else before, _identity(job), repeat])
            before = key  # a case that is not alone is what it is after those before it
            jobs.append(replace(job, key=key))
        together = [tuple(jobs)] if not group.isolated else [(job,) for job in jobs]
        found += [
            Item(
                submission=submission,
                checkpoint=checkpoint,
                group=group.name,
                env=group.env,
                jobs=part,
                reset=group.isolated,
            )
            for part in together
            if part
        ]
    return found


def _identity(job: Job) -> Any:
    """Everything of a case that can change what comes of it."""
    return {name: value for name, value in asdict(job).items() if name not in ("key", "told")}


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=_as_text, ensure_ascii=True)
    return sha256(text.encode()).hexdigest()


def _as_text(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": sha256(value).hexdigest()}
    return repr(value)
