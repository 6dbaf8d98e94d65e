"""What a run is asked to do with its outputs, looked at before there are any: no call is paid for a typing mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kofn.evaluate import Options
    from kofn.running.prepare import Prepared


def check(prepared: Prepared) -> None:
    """Refuse names that nothing answers to, fields that no case has, and a k that no set will reach."""
    from kofn.registry import extractor, metric
    from kofn.running.finish import options_of, plan_of
    from kofn.running.markovian import with_question
    from kofn.stats.estimate import check_interval
    from kofn.stats.intervals import check_level

    options = options_of(prepared)
    check_interval(options.interval)
    check_level(options.level)
    if options.extract is not None:
        extractor(options.extract)
    for name in options.metrics:
        if name not in ("pass", "score"):
            metric(name)
    _check_aggregators(prepared, options)
    _check_fields(prepared, options)
    plan = plan_of(prepared, "run")
    if plan.verdict is not None:
        _check_verdict(plan.verdict)
    if plan.group is not None and not any(plan.group in item.case.tags for item in prepared.items):
        tags = _tags(prepared)
        raise InputError(f"{prepared.task.source}: groups: {UnknownName('field', plan.group, tags, hint=_told(tags))}")
    if (
        prepared.settings.answer_model is not None
        and prepared.task.spec.two_stage is None
        and "critic" not in prepared.models
    ):
        raise InputError("answer_model is the critic, and no stage asks it: give --two-stage too")
    if prepared.settings.compare_markovian:
        with_question(prepared)


def _check_aggregators(prepared: Prepared, options: Options) -> None:
    from kofn.registry import aggregator
    from kofn.running.asking import repeats_of

    rule = repeats_of(prepared)
    for name in options.aggregate:
        k = getattr(aggregator(name), "k", None)
        if not isinstance(k, int) or k <= rule.first:
            continue
        if prepared.settings.adaptive:
            raise InputError(
                f"{name} needs {k} candidates of every case, and adaptive repeats draw {rule.first} at first: "
                f"ask for --repeats {k} --max-repeats {max(k, rule.most)}"
            )
        raise InputError(f"{name} is undefined of {rule.first} candidates: ask for --repeats {k} or more")


def _check_fields(prepared: Prepared, options: Options) -> None:
    tags = _tags(prepared)
    for name in options.by:
        if name not in (*tags, "input", "reference", "cluster"):
            raise UnknownName("field", name, tags, hint=_told(tags))


def _tags(prepared: Prepared) -> list[str]:
    return list(dict.fromkeys(name for item in prepared.items for name in item.case.tags))


def _told(tags: list[str]) -> str:
    return f"its cases have {', '.join(tags) or 'no fields'}"


def _check_verdict(text: str) -> None:
    from kofn.policy import Requirement
    from kofn.registry import aggregator

    aggregator(Requirement.parse(text).name if any(sign in text for sign in "<>") else text)
