"""Data that need not fit into memory: read in pieces of whole cases, each graded by itself, and told together.

On this machine one piece after the other, or as many at a time as an engine has workers; on a cluster each piece goes
to a node that reads it there. What comes back of a piece are some thousand numbers, and the order of the pieces is the
order in which they are added up, so the result is the same bit for bit wherever they were graded.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.errors import InputError, WorldError
from kofn.evaluate import case_column, check_options, graded, suited
from kofn.facts import histogram
from kofn.fields import long_fields
from kofn.importers.pieces import (
    Piece,
    Span,
    buckets,
    columns_of,
    data_set,
    layout,
    look,
    pieces_of,
    read_piece,
    rows_of,
    with_values,
)
from kofn.importers.together import short_sets
from kofn.parts import Part, Sample, part_of, result_of_parts
from kofn.splits import sampled
from kofn.values import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.evaluate import Options, Result
    from kofn.importers.pieces import DataSet, Layout
    from kofn.importers.rows import ReadOptions
    from kofn.table import Table

    OnPart = Callable[[int, int], None]  # candidates done, candidates in all

PART = 1_000_000  # candidates of a part, about
AUTO = 2_000_000  # candidates of a file from which on it is read in parts where nobody said so
_SAMPLED = 2_000  # cases of a bucket that are looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What every worker must know: the data, what of it is read, and how it is graded."""

    data: DataSet
    columns: tuple[str, ...]
    reading: ReadOptions
    options: Options
    base: int | None


def streamable(places: Sequence[str], reading: ReadOptions, size: int | None) -> DataSet | None:
    """The data where it is read in parts: Parquet with a candidate a row, of which there are many, or a folder of it.

    With a `size` asked for anything else is refused.
    """
    local = [place for place in places if Path(place).is_file() or Path(place).is_dir()]
    plain = bool(places) and reading.format in (None, "parquet") and len(local) == len(places)
    data = data_set(places, reading) if plain and _nobodys(local, reading) else None
    if data is None:
        if size is not None:
            raise InputError(_why_not(places))
        return None
    folders = any(Path(place).is_dir() for place in places)
    return data if folders or size is not None or data.n_rows > AUTO else None


def _why_not(places: Sequence[str]) -> str:
    """What to say where a size is asked for and something is no Parquet of ours."""
    away = next((place for place in places if "://" in place), None)
    if away is not None:
        return f"{redacted(away)}: addresses are not read in parts: mount or copy the data, and give its path"
    other = next((place for place in places if not place.endswith(".parquet")), places[0] if places else "this")
    return f"{other}: only Parquet files with a candidate a row are read in parts: leave the size out"


def _nobodys(places: Sequence[str], reading: ReadOptions) -> bool:
    """Whether no importer of another tool's logs knows these, and none is a stored run."""
    from kofn.importers import importer_of
    from kofn.importers.base import Peek

    return not any((Path(p) / "run.json").exists() or importer_of(Peek(Path(p)), reading.format) for p in places)


def score_parts(
    data: DataSet,
    reading: ReadOptions,
    options: Options,
    *,
    size: int | None = None,
    engine: Any = None,
    on_part: OnPart | None = None,
) -> Result:
    """What `evaluate` says of the data, in memory that does not grow with it; `engine` maps over the parts."""
    size = PART if size is None else size
    if not data.n_rows:
        raise InputError(f"{data.source}: no rows")
    reading = replace(reading, keep=tuple(dict.fromkeys((*reading.keep, *reading.where))))
    columns = columns_of(data, reading)
    fields = long_fields(columns, reading.fields)
    if "id" not in fields:
        read_piece(data, columns, Piece(spans=(Span(0, 0, 1),)), reading)  # which says what is missing
    found = layout(data, fields["id"], size, engine)
    seen = look(data, columns, fields["id"], found.spans)
    reading = replace(reading, present=with_values(data, columns, seen.seen))
    with ExitStack() as stack:
        if found.together:
            pieces = pieces_of(found.spans, size)
        else:
            _check_here(data, engine)
            pieces = stack.enter_context(buckets(data, columns, fields["id"], size))
        options = suited(options)
        plan = Plan(
            data=data, columns=tuple(columns), reading=reading, options=options, base=_base(data, fields, found)
        )
        some = seen.table(data, reading) if found.together else None
        sample = _sample(plan, pieces, some)
        parts = _parts(_settled(plan, sample), pieces, engine, on_part)
    if not parts:
        raise InputError(f"{data.source}: no case is left: {_left_out(reading, options)}")
    result = result_of_parts(parts, sample, options)
    short = short_sets(sum((part.sizes for part in parts), Counter[int]()))
    return result.with_told([*data.told, *([] if short is None else [short])])


def _check_here(data: DataSet, engine: Any) -> None:
    if engine is not None and engine.remote:
        raise InputError(
            f"{data.source}: the rows of a case stand apart, and on a cluster each part is read where it is graded: "
            "sort the files by their ids, with every case in one file, or leave --engine out"
        )


def _sample(plan: Plan, pieces: Sequence[Piece], some: Table | None) -> Sample:
    """Cases from all over, graded; where none of them is asked for, the first that are."""
    chosen = None if some is None else _asked_for(some, plan)
    for piece in pieces if chosen is None else ():
        whole = _asked_for(read_piece(plan.data, plan.columns, piece, plan.reading), plan)
        if whole is not None:
            chosen = sampled(whole, _SAMPLED, plan.options.seed)
            break
    if chosen is None:
        raise InputError(f"{plan.data.source}: no case is left: {_left_out(plan.reading, plan.options)}")
    check_options(chosen, plan.options)
    if plan.options.top_k is not None:
        chosen = chosen.truncate(plan.options.top_k)
    table, answers, scored = graded(chosen, replace(plan.options, engine=None), whole=False, base=plan.base)
    return Sample(table=table, answers=answers, scored=scored)


def _left_out(reading: ReadOptions, options: Options) -> str:
    asked = [f"{name}={value}" for name, value in reading.where.items()]
    asked += [] if options.split is None else [f"split {options.split}"]
    return f"none is of {' and '.join(asked)}"


def _asked_for(table: Table, plan: Plan) -> Table | None:
    """The cases asked for with `where` and `split`; None where there are none."""
    some = _where(table, plan)
    split = plan.options.split
    return some if some is None or split is None else split.some_of(some)


def _where(table: Table, plan: Plan) -> Table | None:
    for name, value in plan.reading.where.items():
        kept = (case_column(table, name).cast(pl.String) == value).fill_null(value=False)
        if not kept.any():
            return None
        table = table.of_cases(kept.to_numpy())
    return table


def _settled(plan: Plan, sample: Sample) -> Plan:
    """The plan with the extractor and the metric that were chosen from the sample, so that no part chooses another."""
    options = replace(plan.options, engine=None)
    if sample.answers.extractor is not None:
        options = replace(options, extract=options.extract or sample.answers.extractor)
    labelled = {"passed", "score"} & set(sample.table.candidates.columns) or sample.table.labels
    if not options.metrics and not labelled and sample.scored[0].metric:
        options = replace(options, metrics=(sample.scored[0].metric,))
    return replace(plan, options=options)


def _parts(plan: Plan, pieces: Sequence[Piece], engine: Any, on_part: OnPart | None) -> list[Part]:
    total, done = plan.data.n_rows, 0

    def tell(index: int, came: Any) -> None:
        nonlocal done
        done += _rows(pieces[index]) or (came.facts.n_candidates if isinstance(came, Part) else 0)
        if on_part is not None:
            on_part(done, total)

    if engine is None:
        parts: list[Any] = []
        for index, piece in enumerate(pieces):
            parts.append(part_at(plan, piece))
            tell(index, parts[-1])
    else:
        parts = engine.map(part_at, pieces, shared=plan, on_done=tell)
    for came in parts:
        _check_came(came)
    return [part for part in parts if part is not None]


def _rows(piece: Piece) -> int:
    return sum(span.stop - span.start for span in piece.spans)


def _check_came(came: Any) -> None:
    if came is None or isinstance(came, Part):
        return
    if came.lost:
        raise WorldError(f"a part could not be graded: {came.reason}: fewer --part-size take less memory")
    raise InputError(came.reason.removeprefix("InputError: "))


def part_at(plan: Plan, piece: Piece) -> Part | None:
    """What a worker does: read a piece and say what it holds; None where none of its cases is asked for."""
    read = _where(read_piece(plan.data, plan.columns, piece, plan.reading), plan)
    table = None if read is None else _asked_for(read, plan)
    if read is None or table is None:
        return None
    return replace(part_of(table, plan.options, plan.base), sizes=histogram(np.diff(read.offsets)))


def _base(data: DataSet, fields: Any, found: Layout) -> int | None:
    """Whether references that are places of options count from 0 or from 1, from all of them: see `first_place`."""
    choices, reference = fields.get("choices"), fields.get("reference")
    if choices is None or reference is None or not isinstance(data.schema[choices], pl.List):
        return None
    lowest, at_end = np.inf, False
    for span in found.spans:
        rows = rows_of(data, [choices, reference], span)
        if isinstance(rows[reference].dtype, pl.List):
            return None
        named = rows[reference].cast(pl.String).str.strip_chars()
        places = pl.select(pl.when(named.str.contains(r"^[0-9]{1,9}$")).then(named).cast(pl.Int64)).to_series()
        sizes = rows[choices].list.len()
        known = places.filter(sizes > 0)
        if known.len() > known.null_count():
            lowest = min(lowest, int(known.min()))  # type: ignore[arg-type]  # whole numbers, of which there are some
            at_end = at_end or bool((places == sizes).fill_null(value=False).any())
    return int(np.isfinite(lowest) and lowest > 0 and at_end)
