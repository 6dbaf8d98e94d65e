"""Writes candidates.parquet and cases.parquet, and describes their layout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.runs.files import CANDIDATES, CASES, digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import polars as pl

    from kofn.scoring.result import Result


def write_tables(result: Result, directory: Path, more: Mapping[str, pl.DataFrame]) -> dict[str, str]:
    """Write a run's Parquet files; the digest of each."""
    frames = {CANDIDATES: candidates_frame(result), CASES: cases_frame(result), **more}
    for name, frame in frames.items():
        frame.write_parquet(directory / name)
    return {name: digest(directory / name) for name in frames}


def candidates_frame(result: Result) -> pl.DataFrame:
    """A row a candidate: case_id, index, what was read, the answer, and score and passed a metric."""
    import numpy as np
    import polars as pl

    table = result.table
    assert table is not None
    sizes = np.diff(table.offsets)
    # these are stored per case (reference), per metric (passed) or as found (answer); the order is the repeat
    kept = [c for c in table.candidates.columns if c not in ("reference", "passed", "repeat", "answer")]
    columns = [
        table.cases["case_id"].gather(np.repeat(np.arange(len(sizes)), sizes)),
        pl.Series("index", np.arange(int(sizes.sum())) - np.repeat(table.offsets[:-1], sizes)),
        *table.candidates.select(kept).iter_columns(),
    ]
    first = result.scored[0].sets
    if first.answers is not None:
        columns.append(first.answers.alias("answer"))
    for one in result.scored:
        if one.metric:
            columns.append(pl.Series(f"score.{one.metric}", one.sets.values, nan_to_null=True))
            passed = pl.Series(f"passed.{one.metric}", one.sets.passes)
            columns.append((passed == 1).set(passed < 0, None))  # -1: not graded
    return pl.DataFrame(columns)


def cases_frame(result: Result) -> pl.DataFrame:
    """A row a case: its input, reference, tags, and the value of every aggregator under every metric."""
    import polars as pl

    table = result.table
    assert table is not None
    layout = layout_of(result)
    tags = [table.tags[name].alias(column) for name, column in layout["tags"].items()]
    values = [
        pl.Series(v["column"], result.case_values[v["metric"], v["aggregator"]], nan_to_null=True)
        for v in layout["values"]
    ]
    return pl.DataFrame([*table.cases.iter_columns(), *tags, *values])


def layout_of(result: Result) -> dict[str, Any]:
    """Which column of the files holds what: a tag may be called like an aggregator."""
    table = result.table
    assert table is not None
    values = [
        {"metric": metric, "aggregator": name, "column": f"{metric}.{name}" if metric else name}
        for metric, name in result.case_values
    ]
    return {
        "case_columns": table.cases.columns,
        "tags": _free_names(table.tags.columns, {*table.cases.columns, *(v["column"] for v in values)}),
        "values": values,
        "metrics": [
            {
                "metric": one.metric,
                "source": one.source,
                "beside_labels": one.beside_labels,
                "higher_is_better": one.sets.higher_is_better,
            }
            for one in result.scored
        ],
    }


def _free_names(names: Sequence[str], taken: set[str]) -> dict[str, str]:
    """A column for every name: its own where that is free.

    >>> _free_names(["a", "b", "tag.a"], {"a"})
    {'a': 'tag.tag.a', 'b': 'b', 'tag.a': 'tag.a'}
    """
    used = taken | {name for name in names if name not in taken}
    found = {}
    for name in names:
        column = name
        # "tag." until it is free: a tag may itself be called "tag.a"
        while name in taken and column in used:
            column = f"tag.{column}"
        used.add(column)
        found[name] = column
    return found
