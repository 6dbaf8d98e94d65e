"""From the store to columns: a row a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.generate.store import TYPES, Row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import polars as pl

    from kofn.generate.stages import Stage
    from kofn.generate.store import Store

ALWAYS = ("id", "repeat", "text")
BETWEEN = "\n\n"  # of the reasoning of several stages


def frames(store: Store, stages: Sequence[str], size: int = 20_000) -> Iterator[pl.DataFrame]:
    """The stored replies of these stages, some at a time in the order they came; `at` is their number."""
    import polars as pl

    schema: dict[str, pl.DataType] = {"at": pl.Int64(), **{name: _type(name) for name in Row._fields}}
    for piece in store.pieces(stages, size):
        yield pl.DataFrame(piece, schema=schema, orient="row")


def _type(name: str) -> pl.DataType:
    import polars as pl

    kinds = {"BLOB": pl.Binary(), "TEXT": pl.String(), "INTEGER": pl.Int64(), "REAL": pl.Float64()}
    return kinds[TYPES[name].partition(" ")[0]]


def candidate_rows(
    store: Store, stages: Sequence[Stage], case_ids: Sequence[str], repeats: int, keys: Collection[bytes] | None = None
) -> pl.DataFrame:
    """A row a candidate, by case and then by repeat: what the last stage gave, and what all of them took.

    id, repeat, text     of the last stage; no text where there is an error
    reasoning            what earlier stages wrote, in their order, or else the model's own reasoning
    error                the first one
    tokens, tokens_in, cost, seconds    over all stages; no cost where the price of one is not known
    finish, selector.logprob, detail    of the last stage

    Only the given cases, and repeats below `repeats`. A candidate that a stopped run left between two stages is none.
    Where a case was asked in two ways, the later holds, unless `keys` says which replies are meant. Columns without any
    value are left out, except the first three.
    """
    import polars as pl

    replies = _replies(store, [stage.name for stage in stages], case_ids, repeats, keys)
    last = stages[-1].name
    told = replies.group_by("case", "repeat", maintain_order=True).agg(
        *(_of(last, name) for name in ("text", "finish", "logprob", "detail")),
        reasoning=_reasoning(stages),
        error=pl.col("error").drop_nulls().first(),
        done=(pl.col("stage") == last).any(),
        cost=pl.when((pl.col("cost").is_null() & pl.col("error").is_null()).any()).then(None).otherwise(_sum("cost")),
        **{name: _sum(name) for name in ("tokens_in", "tokens_out", "seconds")},
    )
    told = told.filter(pl.col("done") | pl.col("error").is_not_null()).sort("case", "repeat")
    frame = told.select(
        pl.Series("id", case_ids, dtype=pl.String).gather(told["case"]),
        "repeat",
        "text",
        "reasoning",
        "error",
        tokens="tokens_out",
        tokens_in="tokens_in",
        cost="cost",
        seconds="seconds",
        finish="finish",
        **{"selector.logprob": "logprob"},
        detail="detail",
    )
    return frame.select([s for s in frame if s.name in ALWAYS or s.null_count() < frame.height])


def _replies(
    store: Store, stages: list[str], case_ids: Sequence[str], repeats: int, keys: Collection[bytes] | None
) -> pl.DataFrame:
    """The replies of these candidates in the order of their stages, the latest of each; `case` is the case's place."""
    import polars as pl

    cases = pl.DataFrame({"case_id": pl.Series(case_ids, dtype=pl.String)}).with_row_index("case")
    keep = ["at", "stage", "repeat", "text", "reasoning", "finish", "logprob", "tokens_in", "tokens_out"]
    keep += ["cost", "seconds", "error", "detail", "case_id"]
    meant = pl.lit(value=True) if keys is None else pl.col("key").is_in(pl.Series(list(keys), dtype=pl.Binary))
    pieces = [
        piece.filter(meant).select(keep).filter(pl.col("repeat") < repeats).join(cases, on="case_id").drop("case_id")
        for piece in frames(store, stages)
    ]
    if not pieces:
        empty = pl.DataFrame(schema={name: _type(name) for name in keep[1:-1]})
        return empty.with_columns(at=pl.lit(0, pl.Int64), case=pl.lit(0, pl.UInt32)).clear()
    order = pl.col("stage").replace_strict({name: i for i, name in enumerate(stages)}, return_dtype=pl.Int32)
    latest = pl.concat(pieces).sort("at").unique(["case", "repeat", "stage"], keep="last", maintain_order=True)
    return latest.sort("case", "repeat", order)


def _of(stage: str, name: str) -> pl.Expr:
    import polars as pl

    return pl.col(name).filter(pl.col("stage") == stage).first()


def _sum(name: str) -> pl.Expr:
    """The sum of what is known; none where nothing is."""
    import polars as pl

    return pl.when(pl.col(name).count() > 0).then(pl.col(name).sum())


def _reasoning(stages: Sequence[Stage]) -> pl.Expr:
    import polars as pl

    before = [stage.name for stage in stages[:-1] if stage.kind == "generate"]
    texts = pl.col("text").filter(pl.col("stage").is_in(before)).drop_nulls()
    written = pl.when(texts.len() > 0).then(texts.str.join(BETWEEN))
    return pl.coalesce(written, _of(stages[-1].name, "reasoning"))
