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

    options = options_of(prepared)
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


def _check_aggregators(prepared: Prepared, options: Options) -> None:
    from kofn.registry import aggregator

    for name in options.aggregate:
        k = getattr(aggregator(name), "k", None)
        if isinstance(k, int) and k > prepared.repeats:
            raise InputError(f"{name} is undefined of {prepared.repeats} candidates: ask for --repeats {k} or more")


def _check_fields(prepared: Prepared, options: Options) -> None:
    tags = list(dict.fromkeys(name for item in prepared.items for name in item.case.tags))
    known = [*tags, "input", "reference", "cluster"]
    for name in options.by:
        if name not in known:
            raise UnknownName(
                "field", name, tags, hint=f"the cases of {prepared.task.name} have {', '.join(tags) or 'none'}"
            )


def _check_verdict(text: str) -> None:
    from kofn.policy import Requirement
    from kofn.registry import aggregator

    aggregator(Requirement.parse(text).name if any(sign in text for sign in "<>") else text)
