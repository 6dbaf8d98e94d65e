"""From the stored replies to a scored run directory."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.errors import WorldError
from kofn.running.asking import prices_of, repeats_of
from kofn.running.candidates import table_of
from kofn.running.told import generation_of, sources_of

if TYPE_CHECKING:
    from pathlib import Path

    from kofn.evaluate import Options, Result
    from kofn.generate.runner import Outcome
    from kofn.generate.store import Store
    from kofn.report.convert import Plan
    from kofn.report.run import Run
    from kofn.running.prepare import Prepared
    from kofn.table import Table

_OF_FIRST = ("votes", "diversity")  # of an adaptive run, over the candidates that every case got
_MANY = 0.1  # the share of outputs from which on something is worth a word


def finish(
    prepared: Prepared,
    store: Store,
    directory: Path,
    outcome: Outcome,
    *,
    against: Run | None = None,
    keys: set[bytes] | None = None,
) -> Run:
    """Score what is stored and write the run.

    `against` is the run of the same reasoning answered with the question; `keys` are as in `candidate_rows`.
    """
    from kofn.report.files import write_run
    from kofn.running.reading import read_by_model

    settings = prepared.settings
    table = stored_table(prepared, store, directory, outcome.stopped, keys)
    options = options_of(prepared)
    result = evaluated(prepared, table, options)
    plan = plan_of(prepared, directory.resolve().name, table)
    reading = read_by_model(prepared, store, result, plan, prices_of(prepared))
    made = generation_of(prepared, table, outcome)
    both, notes = _compared(result, against)
    result = result.with_told([*_warnings(prepared, result, outcome), *reading.warnings])
    return write_run(
        result,
        directory,
        sources=sources_of(prepared),
        options=_plain(options),
        plan=plan,
        batch_index=settings.batch_index,
        append_to=settings.append_results,
        generation={**made, **reading.told, **both, "notes": {**made["notes"], **reading.notes, **notes}},
        model_extraction=reading.metric,
        tags=settings.tags,
    )


def _compared(result: Result, against: Run | None) -> tuple[dict[str, Any], dict[str, str]]:
    """For run.json, and for people: how the answers differ from those that saw the question."""
    from kofn.running import markovian

    found = None if against is None or against.result is None else markovian.compared(result, against.result)
    if found is None:
        return {}, {}
    return {"markovian": markovian.as_dict(found)}, {"leans on the question": markovian.told(found)}


def stored_table(
    prepared: Prepared, store: Store, directory: Path, stopped: str | None, keys: set[bytes] | None
) -> Table:
    """The candidates that are there."""
    from kofn.generate.rows import candidate_rows

    stages = prepared.recipe.stages
    ids = [item.case.id for item in prepared.items]
    rows = candidate_rows(store, stages, ids, prepared.repeats, keys)
    if rows.height == 0:
        why = f" ({stopped})" if stopped else ""
        raise WorldError(f"{directory}: no candidate is whole yet{why}: run the same command again to go on")
    if prepared.settings.adaptive:
        rows = _of_the_rule(prepared, rows)
    return table_of(rows, prepared.items, stages[-1].kind, source=str(directory))


def _of_the_rule(prepared: Prepared, rows: pl.DataFrame) -> pl.DataFrame:
    """What the rule of adaptive repeats asks for: a directory may hold more, of a run that had another one."""
    from kofn.generate.adaptive import Adaptive

    rule = repeats_of(prepared)
    assert isinstance(rule, Adaptive)
    texts = rows.group_by("id", maintain_order=True).agg("text")
    items = {item.case.id: item for item in prepared.items}
    sizes = [rule.drawn(items[case], of) for case, of in texts.iter_rows()]
    most = pl.DataFrame({"id": texts["id"], "most": sizes})
    return (
        rows.join(most, on="id", maintain_order="left")
        .filter(pl.int_range(pl.len()).over("id") < pl.col("most"))
        .drop("most")
    )


def options_of(prepared: Prepared) -> Options:
    """How the run is graded: as the task says, but for what was asked for."""
    from kofn.checklist import check_use

    s = prepared.settings
    given: dict[str, Any] = {
        "extract": s.extract,
        "metrics": tuple(s.metrics),
        "aggregate": tuple(s.aggregate),
        "by": tuple(s.by),
        "threshold": s.threshold,
        "use": check_use(s.use),
    }
    asked_for = {name: value for name, value in given.items() if value not in (None, ())}
    if prepared.recipe.stages[-1].kind != "generate":
        asked_for["extract"] = None  # the answer is the option that was chosen
    return prepared.task.evaluate_options(**asked_for, interval=s.interval, level=s.level, seed=s.seed)


def evaluated(prepared: Prepared, table: Table, options: Options) -> Result:
    """The numbers. Of sets that stopped early only the vote and the first candidate are over everything drawn."""
    from kofn.evaluate import default_aggregators, evaluate

    if not prepared.settings.adaptive:
        return evaluate(table, options)
    from kofn.generate.adaptive import keep

    first = repeats_of(prepared).first
    start = evaluate(table.truncate(first), options)
    names = [str(a) for a in options.aggregate or default_aggregators(start.scored[0])]
    over_all = tuple(name for name in names if keep(name, first) is None)
    whole = evaluate(table, replace(options, aggregate=over_all or ("first",)))
    told = {(e.metric, e.aggregator, e.segment): e for e in whole.estimates}
    return replace(
        whole,
        estimates=tuple(told.get((e.metric, e.aggregator, e.segment), e) for e in start.estimates),
        case_values={key: whole.case_values.get(key, values) for key, values in start.case_values.items()},
        extraction=start.extraction,
        diagnostics={**whole.diagnostics, **{k: start.diagnostics[k] for k in _OF_FIRST if k in start.diagnostics}},
    )


def _warnings(prepared: Prepared, result: Result, outcome: Outcome) -> list[str]:
    """What somebody should know of how the outputs were made."""
    found = []
    if outcome.stopped:
        most = len(prepared.items) * prepared.repeats
        found.append(f"not whole: {outcome.stopped}; {result.n_candidates:,} of at most {most:,} candidates are there")
    found += _about_outputs(prepared, result)
    if prepared.settings.adaptive:
        from kofn.generate.adaptive import honest

        first = repeats_of(prepared).first
        names = dict.fromkeys(e.aggregator for e in result.estimates)
        biased = [name for name in names if honest(name, first) is not None]
        if biased:
            found.append(
                f"{', '.join(biased)}: of the first {first} candidates of every case, which are drawn whatever they "
                "say; over sets that stop when they agree they would be biased"
            )
    return found


def _about_outputs(prepared: Prepared, result: Result) -> list[str]:
    """Calls that failed, outputs that were cut off, reasoning that is none."""
    table = result.table
    assert table is not None
    rows, found = table.candidates, []
    if "error" in rows.columns and (failed := rows["error"].count()):
        found.append(f"{failed:,} of {rows.height:,} calls failed, most often: {most_frequent(rows['error'])}")
    if "finish" in rows.columns and (cut := int((rows["finish"] == "length").sum())) > rows.height * _MANY:
        found.append(f"{cut:,} of {rows.height:,} outputs were cut off at max_tokens: give them more, or stops")
    if len(prepared.recipe.stages) > 1 and "reasoning" in rows.columns:
        empty = int((rows["reasoning"].str.strip_chars() == "").sum())
        if empty > rows.height * _MANY:
            found.append(f"the reasoning of {empty:,} of {rows.height:,} candidates is empty")
    return found


def most_frequent(errors: pl.Series) -> str:
    """The error seen most often, cut short."""
    return str(errors.drop_nulls().mode().sort()[0])[:200]


def plan_of(prepared: Prepared, name: str, table: Table | None = None) -> Plan:
    """How the result becomes a report: as the task says, but for what was asked for.

    Of the groups the task names, those that a part of its cases has none of are left out.
    """
    from kofn.policy import PassPolicy

    s = prepared.settings
    policy = None if s.policy is None else PassPolicy(s.policy)
    named = {"verdict": s.verdict, "policy": policy, "threshold": s.threshold}
    plan = prepared.task.report_plan(name=name, **{k: v for k, v in named.items() if v is not None})
    if table is None or plan.group is None or plan.group not in table.tags.columns:
        return plan
    there = set(table.tags[plan.group].cast(pl.String).to_list())
    return replace(
        plan,
        types={group: kind for group, kind in plan.types.items() if group in there},
        weights={group: weight for group, weight in plan.weights.items() if group in there},
    )


def _plain(options: Options) -> dict[str, Any]:
    """Options as run.json keeps them."""
    told = asdict(options)
    return {**told, "metrics": list(options.metrics), "aggregate": list(options.aggregate), "by": list(options.by)}
