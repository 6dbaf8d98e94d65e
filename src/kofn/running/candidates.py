"""From the store's replies to a table of candidates, as an importer would hand it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.table import from_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.generate.stages import Item
    from kofn.generate.store import Row
    from kofn.table import Table

_ALWAYS = ("id", "repeat", "text")


def table_of(rows: pl.DataFrame, items: Sequence[Item], kind: str, *, source: str) -> Table:
    """The candidates of a run. `rows` holds a row a candidate: id, repeat, text, and what else is known of it.

    A case that has no candidate yet (the run was stopped) is left out.
    """
    counts = [c for c in ("tokens", "tokens_in") if c in rows.columns]
    rows = _graded_by_likelihood(rows.with_columns(pl.col(counts).cast(pl.Float64)), kind)  # as files have them
    cases = case_columns(items)
    tags = [c for c in cases.columns if c.startswith("tag.")]
    joined = rows.join(cases, on="id", how="left", maintain_order="left")
    # a field called like a column of ours keeps its prefix
    plain = {c: name if (name := c.removeprefix("tag.")) not in joined.columns else c for c in tags}
    joined, names = joined.rename(plain), list(plain.values())
    return from_rows(
        joined,
        {c: c for c in joined.columns if c not in names},
        names,
        lambda row: f"{source}, row {row + 1}",
        form="run",
        sources=(source,),
    )


def table_of_rows(done: Sequence[tuple[Item, list[Row]]], kind: str) -> Table:
    """The same of cases that have just been done, for a look while the run is going: texts and errors alone."""
    last: dict[tuple[str, int], Row] = {}
    for _, rows in done:
        last.update({(row.case_id, row.repeat): row for row in rows})  # a candidate's rows come stage by stage
    columns = {
        "id": [case for case, _ in last],
        "repeat": [repeat for _, repeat in last],
        "text": [row.text for row in last.values()],
        "error": [row.error for row in last.values()],
        "selector.logprob": [row.logprob for row in last.values()],
        "detail": [row.detail for row in last.values()],
    }
    types = {"id": pl.String, "repeat": pl.Int64, "selector.logprob": pl.Float64}
    frame = pl.DataFrame(columns, schema_overrides={name: types.get(name, pl.String) for name in columns})
    kept = [c for c in frame if c.name in _ALWAYS or c.null_count() < frame.height]
    return table_of(pl.DataFrame(kept), [item for item, _ in done], kind, source="the run")


def _graded_by_likelihood(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """What a model was asked the likelihood of is an answer, or a grade, already.

    Of options: the answer is the chosen label. Of a reference: it passes when every token of it is the likeliest, and
    its score is the geometric mean of the probabilities of its tokens.
    """
    if kind == "choose":
        return rows.with_columns(answer=pl.col("text"))
    if kind == "likelihood":
        detail = rows["detail"].str.json_decode(pl.Struct({"greedy": pl.Boolean, "tokens": pl.Int64}))
        told = detail.struct.unnest()
        return rows.with_columns(
            passed=told["greedy"].cast(pl.Int8),
            score=(rows["selector.logprob"] / told["tokens"]).exp().clip(0, 1),
        )
    return rows


def case_columns(items: Sequence[Item]) -> pl.DataFrame:
    """A row a case; columns that no case has a value of are left out."""
    cases = [item.case for item in items]
    several = any(len(c.references) > 1 for c in cases)
    columns: dict[str, Any] = {"id": [c.id for c in cases], "input": [c.input for c in cases]}
    columns["reference"] = [(list(c.references) or None) if several else next(iter(c.references), None) for c in cases]
    columns["choices"] = [list(c.choices) or None for c in cases]
    columns["cluster"] = [c.cluster for c in cases]
    columns["weight"] = [c.weight for c in cases] if any(c.weight != 1 for c in cases) else [None] * len(cases)
    for name in dict.fromkeys(name for c in cases for name in c.tags):
        columns[f"tag.{name}"] = [c.tags.get(name) for c in cases]
    kept = {name: values for name, values in columns.items() if name == "id" or any(v is not None for v in values)}
    return pl.DataFrame(kept, schema_overrides=_types(kept, several))


def _types(columns: dict[str, Any], several: bool) -> dict[str, Any]:
    lists = {"choices", *(["reference"] if several else [])}
    return {
        name: pl.List(pl.String) if name in lists else pl.Float64 if name == "weight" else pl.String for name in columns
    }
