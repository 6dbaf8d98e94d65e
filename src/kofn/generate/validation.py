"""Checks extractors, metrics, aggregators and fields before the first call, so that no typing mistake costs money."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError, UnknownName
from kofn.generate.markovian import with_question
from kofn.generate.prepared_run import repeats_of
from kofn.registry import aggregator, extractor, metric
from kofn.scoring.policy import Requirement
from kofn.stats.estimates import check_interval
from kofn.stats.intervals import check_level

if TYPE_CHECKING:
    from kofn.generate.prepared_run import PreparedRun
    from kofn.scoring.configuration import GradingConfig


def check_run(prepared: PreparedRun) -> None:
    """Refuse names that nothing answers to, fields that no case has, and a k that no set will reach."""
    options = prepared.grading
    check_interval(options.interval)
    check_level(options.level)
    if options.extract is not None:
        extractor(options.extract)
    for name in options.metrics:
        if name not in ("pass", "score"):
            metric(name)
    _check_aggregators(prepared, options)
    _check_fields(prepared, options)
    plan = prepared.config.report
    if plan.verdict is not None:
        _check_verdict(plan.verdict)
    if plan.group is not None and not any(plan.group in item.case.tags for item in prepared.items):
        tags = _tags(prepared)
        raise InputError(
            f"{prepared.task.source}: groups: {UnknownName('field', plan.group, tags, hint=_tags_hint(tags))}"
        )
    if (
        prepared.config.generation.answer_model is not None
        and prepared.task.spec.two_stage is None
        and "critic" not in prepared.models
    ):
        raise InputError("answer_model is the critic, and no stage asks it: give --two-stage too")
    if prepared.config.generation.compare_markovian:
        with_question(prepared)


def _check_aggregators(prepared: PreparedRun, options: GradingConfig) -> None:
    rule = repeats_of(prepared)
    for name in options.aggregate:
        k = getattr(aggregator(name), "k", None)
        if not isinstance(k, int) or k <= rule.first:
            continue
        if prepared.config.generation.adaptive:
            raise InputError(
                f"{name} needs {k} candidates of every case, and adaptive repeats draw {rule.first} at first: "
                f"ask for --repeats {k} --max-repeats {max(k, rule.most)}"
            )
        raise InputError(f"{name} is undefined of {rule.first} candidates: ask for --repeats {k} or more")


def _check_fields(prepared: PreparedRun, options: GradingConfig) -> None:
    tags = _tags(prepared)
    for name in options.by:
        if name not in (*tags, "input", "reference", "cluster"):
            raise UnknownName("field", name, tags, hint=_tags_hint(tags))


def _tags(prepared: PreparedRun) -> list[str]:
    return list(dict.fromkeys(name for item in prepared.items for name in item.case.tags))


def _tags_hint(tags: list[str]) -> str:
    return f"its cases have {', '.join(tags) or 'no fields'}"


def _check_verdict(text: str) -> None:
    aggregator(Requirement.parse(text).name if any(sign in text for sign in "<>") else text)
