"""Compares the answers that the same reasoning leads to with and without the question in the prompt.

A Markovian answer sees the reasoning alone. Where answers get better with the question at hand, the reasoning does not
carry all that the answer needs. Both answers follow from the same stored reasoning, so the comparison is paired.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.registry import aggregator
from kofn.stats import compare
from kofn.tasks import load_task

if TYPE_CHECKING:
    from kofn.generate.prepared_run import PreparedRun
    from kofn.scoring.result import Result
    from kofn.stats.paired import Comparison

WITH_QUESTION = "answer_with_question"
FOLDER = "with-question"  # the second run's directory, in the first's


def with_question(prepared: PreparedRun) -> PreparedRun:
    """The same run with answers that see the question; only its second stage differs."""
    reasoning, _, other = _stages(prepared)
    return _of_stages(prepared, [reasoning, other])


def with_both_answers(prepared: PreparedRun) -> PreparedRun:
    """Both in one run, for generation: the reasoning, and two answers that follow from it."""
    return _of_stages(prepared, _stages(prepared))


def _stages(prepared: PreparedRun) -> list[dict[str, Any]]:
    if prepared.task.spec.two_stage is None:
        raise InputError(
            "compare_markovian compares the two usual stages: leave out what changes one of them, such as --chat, "
            "--top-p, or stages in the task"
        )
    reasoning, answer = prepared.task.spec.all_stages()
    _, other = prepared.task.two_staged(markovian=False).spec.all_stages()
    # {cot} is the stage before, which is the reasoning in one of the two runs only; {reasoning} is right in both
    prompt = (other.prompt or "").replace("{cot}", "{reasoning}")
    return [
        reasoning.model_dump(),
        answer.model_dump(),
        {**other.model_dump(), "name": WITH_QUESTION, "prompt": prompt},
    ]


def _of_stages(prepared: PreparedRun, stages: list[dict[str, Any]]) -> PreparedRun:
    own = prepared.task
    # `stages` in the place of `two_stage`: a task file may only have one of them
    body = own.spec.model_dump(mode="json", exclude_unset=True, exclude={"two_stage"})
    task = replace(load_task({**body, "stages": stages}), folder=own.folder, source=own.source)
    recipe = task.recipe(prepared.config.generation.data_path, seed=prepared.config.generation.seed)
    return replace(prepared, task=task, recipe=recipe)


def compare_answers(without: Result, with_it: Result) -> Comparison | None:
    """The mean of every case's candidates, answered with the question against without; None where nothing is graded."""
    sides = [_means(result) for result in (without, with_it)]
    if not without.scored[0].metric or any(side is None for side in sides):
        return None
    ids = [result.scored[0].sets.case_ids.to_list() for result in (without, with_it)]
    found = compare(ids[0], sides[0], ids[1], sides[1])
    return found if found.n else None


def _means(result: Result) -> Any:
    sets = result.scored[0].sets
    return aggregator("mean")(sets) if sets.graded.any() else None


def format_comparison(found: Comparison) -> str:
    """The comparison in one line, for the notes of a run."""
    low, high = ("?" if end is None else f"{end:+.3f}" for end in (found.low, found.high))
    return (
        f"{found.a:.3f} without the question, {found.b:.3f} with it: {found.difference:+.3f} [{low}, {high}], "
        f"p {found.p:.3g}, over {found.n:,} cases on the same reasoning"
    )


def comparison_entry(found: Comparison) -> dict[str, Any]:
    """The comparison as an entry of run.json."""
    names = ("n", "a", "b", "difference", "low", "high", "p", "wins", "losses")
    return {name: getattr(found, name) for name in names}
