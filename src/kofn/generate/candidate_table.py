"""Turns stored replies into the table of candidates that is scored, one row per candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.core.table import from_rows
from kofn.generate.store import TYPES, ReplyRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kofn.core.table import Table
    from kofn.generate.store import Store
    from kofn.tasks.stages import Item, Stage

ALWAYS = ("id", "repeat", "text")  # columns that stay even where they hold no value
BETWEEN = "\n\n"  # between the reasoning of one stage and the next


def frames(store: Store, stages: Sequence[str], size: int = 20_000) -> Iterator[pl.DataFrame]:
    """The stored replies of these stages, some at a time in the order they came; `at` is their number."""
    schema: dict[str, pl.DataType] = {"at": pl.Int64(), **{name: _column_type(name) for name in ReplyRow._fields}}
    for piece in store.pieces(stages, size):
        yield pl.DataFrame(piece, schema=schema, orient="row")


def _column_type(name: str) -> pl.DataType:
    kinds = {"BLOB": pl.Binary(), "TEXT": pl.String(), "INTEGER": pl.Int64(), "REAL": pl.Float64()}
    return kinds[TYPES[name].partition(" ")[0]]


def candidate_rows(
    store: Store, stages: Sequence[Stage], case_ids: Sequence[str], repeats: int, keys: Collection[bytes] | None = None
) -> pl.DataFrame:
    """One row per candidate, by case and then by repeat: the output of the last stage, and the cost of all stages.

    id, repeat, text     of the last stage; no text where there is an error
    reasoning            what earlier stages wrote, in their order, or else the model's own reasoning
    error                the first one
    tokens, tokens_in, cost, seconds    over all stages; no cost where the price of one is not known
    finish, selector.logprob, detail    of the last stage

    Only the given cases, and repeats below `repeats`, without candidates that a stopped run left between two stages.
    Where a case was asked in two ways, the later holds, unless `keys` says which replies are meant. Columns without any
    value are left out, except the first three.
    """
    replies = _stored_replies(store, [stage.name for stage in stages], case_ids, repeats, keys)
    last = stages[-1].name
    before = [stage.name for stage in stages[:-1] if stage.kind == "generate"]
    written = pl.col("text").filter(pl.col("stage").is_in(before)).drop_nulls()
    candidates = replies.group_by("case", "repeat", maintain_order=True).agg(
        *(_last_of(last, name) for name in ("text", "finish", "logprob", "detail")),
        reasoning=pl.coalesce(pl.when(written.len() > 0).then(written.str.join(BETWEEN)), _last_of(last, "reasoning")),
        error=pl.col("error").drop_nulls().first(),  # the stages after it were not asked
        done=(pl.col("stage") == last).any(),
        cost=pl.when((pl.col("cost").is_null() & pl.col("error").is_null()).any())
        .then(None)
        .otherwise(_known_sum("cost")),
        **{name: _known_sum(name) for name in ("tokens_in", "tokens_out", "seconds")},
    )
    candidates = candidates.filter(pl.col("done") | pl.col("error").is_not_null()).sort("case", "repeat")
    frame = candidates.select(
        pl.Series("id", case_ids, dtype=pl.String).gather(candidates["case"]),
        *("repeat", "text", "reasoning", "error"),
        pl.col("tokens_out").alias("tokens"),
        *("tokens_in", "cost", "seconds", "finish"),
        pl.col("logprob").alias("selector.logprob"),
        "detail",
    )
    return _without_empty(frame)


def _without_empty(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.select([column for column in rows if column.name in ALWAYS or column.null_count() < rows.height])


def _stored_replies(
    store: Store, stages: list[str], case_ids: Sequence[str], repeats: int, keys: Collection[bytes] | None
) -> pl.DataFrame:
    """The replies of these candidates in the order of their stages, the latest of each; `case` is the case's place."""
    cases = pl.DataFrame({"case_id": pl.Series(case_ids, dtype=pl.String)}).with_row_index("case")
    keep = ["at", "stage", "repeat", "text", "reasoning", "finish", "logprob", "tokens_in", "tokens_out"]
    keep += ["cost", "seconds", "error", "detail", "case_id"]
    meant = pl.lit(value=True) if keys is None else pl.col("key").is_in(pl.Series(list(keys), dtype=pl.Binary))
    pieces = [
        piece.filter(meant).select(keep).filter(pl.col("repeat") < repeats).join(cases, on="case_id").drop("case_id")
        for piece in frames(store, stages)
    ]
    if not pieces:
        empty = pl.DataFrame(schema={name: _column_type(name) for name in keep[1:-1]})
        return empty.with_columns(at=pl.lit(0, pl.Int64), case=pl.lit(0, pl.UInt32)).clear()
    order = pl.col("stage").replace_strict({name: i for i, name in enumerate(stages)}, return_dtype=pl.Int32)
    # sorted by row id, so that the latest of several replies is kept
    latest = pl.concat(pieces).sort("at").unique(["case", "repeat", "stage"], keep="last", maintain_order=True)
    return latest.sort("case", "repeat", order)


def _last_of(stage: str, name: str) -> pl.Expr:
    return pl.col(name).filter(pl.col("stage") == stage).first()


def _known_sum(name: str) -> pl.Expr:
    """The sum of what is known; none where nothing is."""
    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())


def table_of(rows: pl.DataFrame, items: Sequence[Item], kind: str, *, source: str) -> Table:
    """The candidates of a run. `rows` holds one row per candidate: id, repeat, text, and what else is known of it.

    A case that has no candidate yet (the run was stopped) is left out.
    """
    counts = [c for c in ("tokens", "tokens_in") if c in rows.columns]
    # importers give token counts as floats, so a run has the same types as a file
    rows = _graded_by_likelihood(rows.with_columns(pl.col(counts).cast(pl.Float64)), kind)
    cases = case_columns(items)
    tags = [c for c in cases.columns if c.startswith("tag.")]
    joined = rows.join(cases, on="id", how="left", maintain_order="left")
    # a tag that has the name of one of our columns keeps its prefix
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


def table_of_rows(done: Sequence[tuple[Item, list[ReplyRow]]], kind: str) -> Table:
    """The same for cases that have just finished, for running estimates: without tokens, cost and times."""
    last: dict[tuple[str, int], ReplyRow] = {}
    for _, rows in done:
        last.update({(row.case_id, row.repeat): row for row in rows})  # a candidate's rows come stage by stage
    columns = ("case_id", "repeat", "text", "error", "logprob", "detail")
    frame = pl.DataFrame(
        [[getattr(row, name) for name in columns] for row in last.values()],
        schema={name: _column_type(name) for name in columns},
        orient="row",
    )
    frame = _without_empty(frame.rename({"case_id": "id", "logprob": "selector.logprob"}))
    return table_of(frame, [item for item, _ in done], kind, source="the run")


def _graded_by_likelihood(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Replies of likelihood stages need no extractor: they are answers, or grades, already.

    Of options: the answer is the chosen label. Of a reference: it passes when every token of it is the likeliest, and
    its score is the geometric mean of the probabilities of its tokens.
    """
    if kind == "choose":
        return rows.with_columns(answer=pl.col("text"))
    if kind == "likelihood":
        detail = rows["detail"].str.json_decode(pl.Struct({"greedy": pl.Boolean, "tokens": pl.Int64}))
        details = detail.struct.unnest()
        return rows.with_columns(
            passed=details["greedy"].cast(pl.Int8),
            score=(rows["selector.logprob"] / details["tokens"]).exp().clip(0, 1),
        )
    return rows


def case_columns(items: Sequence[Item]) -> pl.DataFrame:
    """One row per case; columns without any value are left out."""
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
    texts = pl.List(pl.String())
    types = {"choices": texts, "weight": pl.Float64(), **({"reference": texts} if several else {})}
    return pl.DataFrame(kept, schema_overrides={name: types.get(name, pl.String()) for name in kept})
