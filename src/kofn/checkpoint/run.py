"""Run submissions against a problem: what is finished is kept, what is left is run, and all of it is reported."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.checkpoint.adapters.base import Observed
from kofn.checkpoint.author import check_author
from kofn.checkpoint.execute import run_item
from kofn.checkpoint.load import load_problem
from kofn.checkpoint.plan import check_entry, context_of, items_of, names_of, selected, submissions_of, warning_of
from kofn.checkpoint.problem import ALL, LAST, Problem
from kofn.checkpoint.progress import Count, telling
from kofn.checkpoint.results import results_of
from kofn.checkpoint.sandbox import find
from kofn.checkpoint.scratch import scratch_folder
from kofn.checkpoint.verify import VERIFIER
from kofn.checkpoint.verify import verified as checked
from kofn.checkpoint.work import Done, Ended, passed
from kofn.engine.base import Failed
from kofn.errors import InputError
from kofn.policy import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kofn.checkpoint.plan import Submission
    from kofn.checkpoint.problem import Checkpoint
    from kofn.checkpoint.sandbox import Sandbox
    from kofn.checkpoint.store import Cases
    from kofn.checkpoint.work import Item
    from kofn.engine.base import Engine
    from kofn.report.results import CorrectnessResults


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """One submission at one checkpoint: the results, and every execution by (group, case)."""

    submission: Submission
    checkpoint: Checkpoint
    results: CorrectnessResults
    done: dict[tuple[str, str], list[Done]] = field(repr=False)

    def flaky(self) -> list[str]:
        """The cases that pass at some times and fail at others."""
        found = []
        for (group, case), repeats in self.done.items():
            if 0 < sum(map(passed, repeats)) < len(repeats):
                found.append(f"{group}/{case}")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What `verify` found: all submissions at all checkpoints asked for.

    `part` says which cases were asked for, where not all of them were.
    """

    problem: Problem
    sandbox: Sandbox
    verified: tuple[Verified, ...]
    n_executions: int
    n_reused: int
    repeats: int = 1
    part: str | None = None
    warnings: tuple[str, ...] = ()

    @property
    def several(self) -> bool:
        """Whether there is more than one submission."""
        return len({one.submission.name for one in self.verified}) > 1


def run_checkpoint(
    problem: Problem | Path | str,
    submission: Path | str,
    checkpoint: str | int = LAST,
    *,
    policy: PassPolicy | str = PassPolicy.CORE_CASES,
    groups: Sequence[str] = (),
    cases: Sequence[str] = (),
    repeat: int = 1,
    workers: int | None = None,
    unsafe: bool = False,
    out: Path | str | None = None,
) -> CorrectnessResults:
    """One submission against one checkpoint (a name, a number from 1, or the last), in the sandbox of this machine.

    With `out`, finished cases are kept there and not run again.
    """
    found = problem if isinstance(problem, Problem) else load_problem(problem)
    if checkpoint == ALL:
        raise InputError("run_checkpoint runs one checkpoint: give a name or a number (kofn verify --checkpoint all)")
    done = verify(
        found,
        [Path(submission)],
        found.chosen(checkpoint),
        policy=policy,
        groups=groups,
        cases=cases,
        repeat=repeat,
        workers=workers,
        sandbox=find(unsafe=unsafe),
        out=None if out is None else Path(out),
    )
    return done.verified[0].results


def verify(
    problem: Problem,
    paths: Sequence[Path],
    checkpoints: Sequence[Checkpoint],
    *,
    policy: PassPolicy | str = PassPolicy.CORE_CASES,
    groups: Sequence[str] = (),
    cases: Sequence[str] = (),
    repeat: int = 1,
    workers: int | None = None,
    engine: Engine | None = None,
    sandbox: Sandbox | None = None,
    out: Path | None = None,
    on_total: Callable[[int, int, int], None] | None = None,
    on_case: Callable[[Done], None] | None = None,
) -> Verification:
    """Several submissions against several checkpoints.

    `on_total` is told how many executions there are, how many of them are finished already, and how many of those
    passed; `on_case` gets each that is run.
    """
    rule = PassPolicy(policy)
    chosen = selected(checkpoints, groups, cases)
    with _an_engine(engine, workers) as used, scratch_folder() as scratch, _store(out) as store:
        box = sandbox or find()
        submissions = _submissions(problem, paths, store, packed=used.remote)
        if not used.remote:
            check_entry(problem, box)
        context = context_of(problem, submissions, box, scratch)
        check_author(context, chosen, used, problem.folder)
        items = _items(problem, submissions, chosen, repeat, box)
        every = [item for part in items.values() for item in part]
        keys = {job.key for item in every for job in item.jobs}
        known = {} if store is None else store.get(keys)
        n_reused = len(known)
        known |= _failed(problem, submissions, items)
        n_before = len(known)
        todo = _unfinished(every, known)
        count = Count(then_total=on_total, then_case=on_case)
        with telling(out, count, problem.name, [one.name for one in submissions], keep=False):
            finished = keys - {job.key for item in todo for job in item.jobs}
            count.on_total(len(keys), len(finished), sum(passed(known[key]) for key in finished))
            keep = _Keeper(todo, known, store, count.on_case)
            used.map(run_item, todo, shared=context, on_done=keep)
    now = datetime.now(UTC)
    verified = []
    for (number, name), part in items.items():
        submission, checkpoint = submissions[number], next(c for c in chosen if c.name == name)
        done = _done_of(part, known)
        results = results_of(problem, checkpoint, done, policy=rule, timestamp=now)
        verified.append(Verified(submission=submission, checkpoint=checkpoint, results=results, done=done))
    return Verification(
        problem=problem,
        sandbox=box,
        verified=tuple(verified),
        n_executions=len(known) - n_before,
        n_reused=n_reused,
        repeats=repeat,
        part=_part(groups, cases),
        warnings=tuple(filter(None, (warning_of(problem, one) for one in submissions))),
    )


def _part(groups: Sequence[str], cases: Sequence[str]) -> str | None:
    """Which groups and cases were asked for, in words."""
    told = [f"group {name}" for name in groups] + [f"case {name}" for name in cases]
    return f"only {', '.join(told)}" if told else None


def _submissions(problem: Problem, paths: Sequence[Path], store: Cases | None, *, packed: bool) -> list[Submission]:
    """The submissions, called as in earlier commands where there were some."""
    names = names_of(paths, store.names() if store else None)
    found = submissions_of(problem, paths, names, packed=packed)
    if store is not None:
        store.name({str(one.path.resolve()): one.name for one in found})
    return found


def _items(
    problem: Problem, submissions: Sequence[Submission], checkpoints: Sequence[Checkpoint], repeat: int, box: Sandbox
) -> dict[tuple[int, str], list[Item]]:
    """What is to be run, by the submission's number and the checkpoint's name."""
    return {
        (number, checkpoint.name): [
            item
            for group in checkpoint.groups
            for item in items_of(problem, number, one.tree, group, checkpoint.name, repeats=repeat, sandbox=box)
        ]
        for number, one in enumerate(submissions)
        for checkpoint in checkpoints
    }


def _failed(
    problem: Problem, submissions: Sequence[Submission], items: dict[tuple[int, str], list[Item]]
) -> dict[str, Done]:
    """What comes of submissions that cannot be run: every case of them fails, with the reason."""
    with_verifier = f"{VERIFIER}.py" in problem.code
    return {
        job.key: checked(job, Observed(ended=Ended(stopped=submissions[number].unusable)), with_verifier=with_verifier)
        for (number, _), part in items.items()
        if submissions[number].unusable is not None
        for item in part
        for job in item.jobs
    }


def _unfinished(items: Sequence[Item], known: dict[str, Done]) -> list[Item]:
    """The items of which something is still to do, each once: equal submissions are run once."""
    seen: set[tuple[str, ...]] = set()
    found = []
    for item in items:
        keys = tuple(job.key for job in item.jobs)
        if keys not in seen and any(key not in known for key in keys):
            seen.add(keys)
            found.append(item)
    return found


class _Keeper:
    """Keeps what comes of items as it comes."""

    def __init__(
        self, items: Sequence[Item], known: dict[str, Done], store: Cases | None, on_case: Callable[[Done], None]
    ) -> None:
        self._items, self._known, self._store, self._on_case = items, known, store, on_case

    def __call__(self, index: int, came: list[Done] | Failed) -> None:
        if isinstance(came, Failed):
            came = [Done(key=job.key, broken=came.reason) for job in self._items[index].jobs]
        kept = came if self._store is None else self._store.put(came)
        for done in kept:
            self._known[done.key] = done
            self._on_case(done)


def _done_of(items: Sequence[Item], known: dict[str, Done]) -> dict[tuple[str, str], list[Done]]:
    found: dict[tuple[str, str], list[Done]] = {}
    for item in items:
        for job in item.jobs:
            found.setdefault((item.group, job.id), []).append(known[job.key])
    return found


@contextmanager
def _an_engine(given: Engine | None, workers: int | None) -> Iterator[Engine]:
    """The engine that was given, which its owner closes, or one of our own."""
    if given is not None:
        yield given
        return
    from kofn.engine import engine

    with engine("local", workers=workers) as own:
        yield own


def _store(out: Path | None) -> Any:
    if out is None:
        return nullcontext(None)
    from kofn.checkpoint.store import Cases

    return Cases(out)
