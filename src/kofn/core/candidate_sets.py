"""Holds all candidate sets of a run as columns; the only place that groups rows by case.

Rows of one case are contiguous: set i is rows offsets[i]:offsets[i+1]. There is one array per column, so that a
million sets of eight are a few arrays and not eight million objects. An aggregator reads *blocks*: sets of equal
size with one row per position, so that numpy reduces along the first axis in cache.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import polars as pl

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

NO_ANSWER = -1
NOT_GRADED = -1

_BLOCK_CELLS = 1 << 17  # 1 MB of 8-byte cells stays in the second-level cache


class Block(NamedTuple):
    """Some sets of the same size n: where they are, and their columns, each of shape (n, number of sets)."""

    at: slice | Ints
    columns: tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """One case's candidates, as a user's own aggregator sees them.

    `values`, `passes` and `answers` hold None where not graded or not answered.
    """

    case_id: str
    values: tuple[float | None, ...]
    passes: tuple[bool | None, ...] = ()
    answers: tuple[str | None, ...] = ()
    texts: tuple[str | None, ...] = ()
    costs: tuple[float | None, ...] = ()
    seconds: tuple[float | None, ...] = ()
    selectors: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateSets:
    """All candidate sets of a run under one metric.

    values    float, NaN = not graded
    passes    int8: 1, 0, -1 = not graded
    answers   one text or null a row; `codes` gives them as integers, -1 = no answer
    selectors named scores that may pick a candidate (a judge, a reward model, a log-probability)
    required, ideal, facets   lists for coverage and ranking

    >>> sets = CandidateSets.from_lists([[1, 0, 1], [0]])
    >>> len(sets), sets.sizes.tolist(), sets.passes.tolist()
    (2, [3, 1], [1, 0, 1, 0])
    """

    case_ids: pl.Series
    offsets: Ints
    values: Floats
    passes: npt.NDArray[np.int8]
    answers: pl.Series | None = None
    texts: pl.Series | None = None
    costs: Floats | None = None
    seconds: Floats | None = None
    selectors: Mapping[str, Floats] = field(default_factory=dict)
    candidate_weights: Floats | None = None
    facets: pl.Series | None = None
    required: pl.Series | None = None
    ideal: pl.Series | None = None
    higher_is_better: bool = True

    @classmethod
    def from_lists(
        cls,
        values: Sequence[Sequence[float | bool | None]],
        *,
        case_ids: Sequence[str] | None = None,
        passes: Sequence[Sequence[bool | int | None]] | None = None,
        answers: Sequence[Sequence[object]] | None = None,
        texts: Sequence[Sequence[str | None]] | None = None,
        selectors: Mapping[str, Sequence[Sequence[float | None]]] | None = None,
        weights: Sequence[Sequence[float]] | None = None,
        facets: Sequence[Sequence[Sequence[str]]] | None = None,
        required: Sequence[Sequence[str]] | None = None,
        ideal: Sequence[Sequence[float]] | None = None,
        threshold: float | None = None,
        higher_is_better: bool = True,
    ) -> CandidateSets:
        """Build from one list a set; for tests, notebooks and single sets. Lists of one set must agree in length."""
        import polars as pl

        sizes = [len(v) for v in values]
        _check_lengths(
            sizes,
            passes=passes,
            answers=answers,
            texts=texts,
            weights=weights,
            facets=facets,
            **(selectors or {}),
        )
        flat = np.array([np.nan if v is None else float(v) for vs in values for v in vs], dtype=np.float64)
        flags = [NOT_GRADED if p is None else int(bool(p)) for ps in passes or () for p in ps]
        answer_texts = None if answers is None else [None if a is None else str(a) for s in answers for a in s]
        return cls(
            case_ids=pl.Series("case_id", case_ids or [str(i) for i in range(len(sizes))], dtype=pl.String),
            offsets=offsets_of(np.array(sizes, dtype=np.int64)),
            values=flat,
            passes=passes_of(flat, threshold, higher_is_better) if passes is None else np.array(flags, dtype=np.int8),
            answers=None if answer_texts is None else pl.Series("answer", answer_texts, dtype=pl.String),
            texts=None if texts is None else pl.Series("text", [t for s in texts for t in s], dtype=pl.String),
            selectors={k: _flat_floats(v) for k, v in (selectors or {}).items()},
            candidate_weights=None if weights is None else _flat_floats(weights),
            facets=None
            if facets is None
            else pl.Series("facets", [list(f) for s in facets for f in s], dtype=pl.List(pl.String)),
            required=None
            if required is None
            else pl.Series("required", [[str(r) for r in rs] for rs in required], dtype=pl.List(pl.String)),
            ideal=None
            if ideal is None
            else pl.Series("ideal", [list(map(float, i)) for i in ideal], dtype=pl.List(pl.Float64)),
            higher_is_better=higher_is_better,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def having(self, name: str) -> pl.Series:
        """The column `texts`, `answers`, `facets` or `required`, for what cannot be computed without it."""
        column: pl.Series | None = getattr(self, name)
        if column is None:
            raise InputError(f"these candidates have no {name}")
        return column

    @cached_property
    def sizes(self) -> Ints:
        """Candidates a set, graded or not."""
        return np.diff(self.offsets)

    @cached_property
    def complete(self) -> bool:
        """Whether every candidate is graded, by value and by pass."""
        if not len(self.values):
            return True
        # the minimum is NaN if any value is: faster than an array of flags
        return not np.isnan(np.min(self.values)) and int(self.passes.min()) > NOT_GRADED

    @cached_property
    def codes(self) -> Ints:
        """Answers as integers: equal answers of a set have equal codes, -1 is no answer.

        The code is 63 bits of the text's hash: two different answers of one set share a code with
        probability 2**-63. Only equality is used, so results do not depend on the hash itself.
        """
        if self.answers is None:
            raise InputError("this aggregator votes on answers and there are none: give answers or an extractor")
        # one bit is given up so that no code is negative and NO_ANSWER stays free
        codes = (self.answers.hash().to_numpy() >> np.uint64(1)).view(np.int64)
        if self.answers.null_count():
            codes[self.answers.is_null().to_numpy()] = NO_ANSWER
        return codes

    @cached_property
    def binary(self) -> bool:
        """Whether every value is 0 or 1 and says what its pass says: then counts tell everything."""
        return self.complete and bool((self.values == self.passes).all())

    @cached_property
    def zero_one(self) -> bool:
        """Whether every graded value is 0 or 1."""
        return self.binary or bool(np.isin(self.values[self.graded], (0.0, 1.0)).all())

    @cached_property
    def graded(self) -> npt.NDArray[np.bool_]:
        return ~np.isnan(self.values)

    @cached_property
    def counts(self) -> tuple[Ints, Ints]:
        """(candidates with a verdict, passing candidates) a set."""
        if self.complete:
            return self.sizes, self._sum_flags(self.passes)
        return self._sum_flags(self.passes != NOT_GRADED), self._sum_flags(self.passes == 1)

    def _sum_flags(self, flags: Array) -> Ints:
        """How many of each set's 0/1 flags are set. Bytes are added as bytes: 255 at a time cannot overflow."""
        # flags are 0 or 1 here: the -1 of an ungraded candidate would count as 255
        out = np.zeros(len(self), dtype=np.int64)
        for at, (block,) in self.blocks(flags.view(np.uint8)):
            for start in range(0, len(block), 255):
                out[at] += np.add.reduce(block[start : start + 255], axis=0, dtype=np.uint8)
        return out

    @cached_property
    def equal_size(self) -> int | None:
        """The size of every set where all have the same, and it is not 0."""
        if not len(self):
            return None
        first = int(self.sizes[0])
        return first if first > 0 and bool((self.sizes == first).all()) else None

    @cached_property
    def _by_size(self) -> list[tuple[int, slice | Ints]]:
        """The sets of each size n > 0: all of them as one slice when the sizes are equal."""
        if self.equal_size is not None:
            return [(self.equal_size, slice(0, len(self)))]
        return [(int(n), np.flatnonzero(self.sizes == n)) for n in np.unique(self.sizes) if n > 0]

    def blocks(self, *columns: Array) -> Iterator[Block]:
        """Walk the sets in blocks of equal size, each column as (position, set), contiguous."""
        for n, where in self._by_size:
            step = max(1, _BLOCK_CELLS // n)
            total = len(self) if isinstance(where, slice) else len(where)
            for start in range(0, total, step):
                stop = min(start + step, total)
                if isinstance(where, slice):
                    low, high = start * n, stop * n
                    # sets of one size are a matrix already: one transposed copy, no index
                    cut = tuple(np.ascontiguousarray(c[low:high].reshape(-1, n).T) for c in columns)
                    yield Block(slice(start, stop), cut)
                else:
                    index = where[start:stop]
                    # row r of the index is candidate r of every set: the result is (position, set)
                    rows = self.offsets[index][None, :] + np.arange(n)[:, None]
                    yield Block(index, tuple(c[rows] for c in columns))

    def map_blocks(self, kernel: Any, *columns: Array, empty: float = np.nan) -> Floats:
        """One number a set: kernel takes (n, sets) arrays and returns one value a set; `empty` for empty sets."""
        out = np.full(len(self), empty)
        for block in self.blocks(*columns):
            out[block.at] = kernel(*block.columns)
        return out

    def truncate(self, k: int) -> CandidateSets:
        """Keep the first k candidates of every set.

        >>> CandidateSets.from_lists([[1, 0, 1], [0]]).truncate(2).sizes.tolist()
        [2, 1]
        """
        # a row's place in its set is its row number less the offset of the set
        keep = np.arange(len(self.values)) - np.repeat(self.offsets[:-1], self.sizes) < k
        return self._replace_rows(keep, offsets_of(np.minimum(self.sizes, k)))

    def take(self, index: Ints) -> CandidateSets:
        """The sets at these positions, in this order."""
        sizes = self.sizes[index]
        # consecutive numbers, shifted set by set to where the rows of that set are now
        rows = np.repeat(self.offsets[index] - offsets_of(sizes)[:-1], sizes) + np.arange(int(sizes.sum()))
        changed = self._replace_rows(rows, offsets_of(sizes))
        return _replace(
            changed,
            case_ids=self.case_ids.gather(index),
            required=None if self.required is None else self.required.gather(index),
            ideal=None if self.ideal is None else self.ideal.gather(index),
        )

    def passing_from(self, threshold: float | None) -> CandidateSets:
        """The same values with passes decided by this threshold; None is the usual one.

        >>> CandidateSets.from_lists([[0.2, 0.7]]).passing_from(0.5).passes.tolist()
        [0, 1]
        """
        return _replace(self, passes=passes_of(self.values, threshold, self.higher_is_better))

    def graded_only(self) -> CandidateSets:
        """Without the candidates that have no verdict.

        >>> CandidateSets.from_lists([[1, None, 0], [None]]).graded_only().sizes.tolist()
        [2, 0]
        """
        if self.complete:
            return self
        return self._replace_rows(self.passes != NOT_GRADED, offsets_of(self.counts[0]))

    def reorder(self, rows: Ints) -> CandidateSets:
        """The same sets with their candidates in another order; `rows` keeps every candidate in its set."""
        return self._replace_rows(rows, self.offsets)

    def _replace_rows(self, rows: Array, offsets: Ints) -> CandidateSets:
        def series(s: pl.Series | None) -> pl.Series | None:
            if s is None:
                return None
            return s.filter(rows) if rows.dtype == np.bool_ else s.gather(rows)

        def array(a: Array | None) -> Any:
            return None if a is None else a[rows]

        return _replace(
            self,
            offsets=offsets,
            values=self.values[rows],
            passes=self.passes[rows],
            answers=series(self.answers),
            texts=series(self.texts),
            costs=array(self.costs),
            seconds=array(self.seconds),
            candidate_weights=array(self.candidate_weights),
            selectors={k: v[rows] for k, v in self.selectors.items()},
            facets=series(self.facets),
        )

    def __getitem__(self, i: int) -> CandidateSet:
        """The i-th set as an object, made when somebody looks.

        >>> CandidateSets.from_lists([[1, None]], answers=[["a", None]])[0].values
        (1.0, None)
        """
        low, high = int(self.offsets[i]), int(self.offsets[i + 1])
        return CandidateSet(
            case_id=str(self.case_ids[int(i)]),  # a place may come from numpy, which polars does not take
            values=_optional(self.values[low:high]),
            passes=tuple(None if p == NOT_GRADED else bool(p) for p in self.passes[low:high]),
            answers=() if self.answers is None else tuple(self.answers[low:high]),
            texts=() if self.texts is None else tuple(self.texts[low:high]),
            costs=() if self.costs is None else _optional(self.costs[low:high]),
            seconds=() if self.seconds is None else _optional(self.seconds[low:high]),
            selectors={k: _optional(v[low:high]) for k, v in self.selectors.items()},
        )

    def __iter__(self) -> Iterator[CandidateSet]:
        return (self[i] for i in range(len(self)))


def offsets_of(sizes: Ints) -> Ints:
    """Row offsets of sets of these sizes.

    >>> offsets_of(np.array([3, 0, 2])).tolist()
    [0, 3, 3, 5]
    """
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes, dtype=np.int64)])


class Grouping(NamedTuple):
    """Rows put together by case: `order` is the row permutation, None when they already were."""

    case_ids: pl.Series
    offsets: Ints
    order: Ints | None

    def owner(self) -> Ints:
        """The case index of every row."""
        return np.repeat(np.arange(len(self.case_ids)), np.diff(self.offsets))

    def find_duplicate(self, repeat: pl.Series) -> int | None:
        """The row that gives a repeat index its case already has; None when there is none."""
        arranged = repeat if self.order is None else repeat.gather(self.order)
        # numpy may get a read-only view from polars, hence the copy
        same = (arranged == arranged.shift(1)).fill_null(value=False).to_numpy().copy()
        # the first row of a case repeats nothing, whatever the case before it ended with
        same[self.offsets[:-1][np.diff(self.offsets) > 0]] = False
        if not same.any():
            return None
        row = int(same.argmax())
        return row if self.order is None else int(self.order[row])


def group_rows(ids: pl.Series, repeat: pl.Series | None = None) -> Grouping:
    """Group rows by id, cases in order of first appearance, candidates by `repeat` where given, else as they come.

    >>> import polars as pl
    >>> g = group_rows(pl.Series(["b", "a", "b"]))
    >>> g.case_ids.to_list(), g.offsets.tolist(), g.order.tolist()
    (['b', 'a'], [0, 2, 3], [0, 2, 1])
    """
    import polars as pl

    ids = ids.alias("case_id")
    starts = (ids != ids.shift(1)).fill_null(value=True).to_numpy()
    first = np.flatnonzero(starts)
    case_ids = ids.gather(first)
    # the usual file has its cases together already: then no id starts twice, and nothing is sorted
    contiguous = case_ids.n_unique() == len(case_ids)
    if contiguous and (repeat is None or _is_ascending(repeat, starts)):
        return Grouping(case_ids, np.append(first, len(ids)), None)
    frame = pl.DataFrame({"case_id": ids, "row": np.arange(len(ids))})
    # a case is numbered by its first row: sorting by that keeps the order of first appearance
    case = pl.col("row").min().over("case_id")
    frame = frame.with_columns(
        case.alias("case"), (pl.lit(0) if repeat is None else repeat.fill_null(0)).alias("repeat")
    )
    ordered = frame.sort("case", "repeat", "row")  # the row last: equal repeats stay in file order
    runs = ordered.group_by("case", maintain_order=True).agg(pl.col("case_id").first(), pl.len())
    return Grouping(runs["case_id"], offsets_of(runs["len"].to_numpy().astype(np.int64)), ordered["row"].to_numpy())


def _is_ascending(repeat: pl.Series, starts: Array) -> bool:
    """Whether the repeat index never falls within a case."""
    steps = repeat.fill_null(0).diff().fill_null(0).to_numpy()
    return not bool(((steps < 0) & ~starts).any())


def passes_of(values: Floats, threshold: float | None = None, higher_is_better: bool = True) -> npt.NDArray[np.int8]:
    """1 where a value reaches the threshold, 0 where not, -1 where not graded.

    The threshold defaults to 1.0; for a lower-is-better metric to 0.0, and a pass is at or below it.

    >>> passes_of(np.array([1.0, 0.5, np.nan])).tolist()
    [1, 0, -1]
    """
    if threshold is None:
        threshold = 1.0 if higher_is_better else 0.0
    # a view, not a copy; NaN compares false and is marked below
    passes = (values >= threshold if higher_is_better else values <= threshold).view(np.int8)
    if len(values) and np.isnan(np.min(values)):
        passes[np.isnan(values)] = NOT_GRADED
    return passes


def _replace(sets: CandidateSets, **changes: Any) -> CandidateSets:
    from dataclasses import fields

    return CandidateSets(**{f.name: getattr(sets, f.name) for f in fields(sets)} | changes)


def _optional(values: Floats) -> tuple[float | None, ...]:
    return tuple(None if v != v else v for v in values.tolist())  # only NaN differs from itself


def _flat_floats(lists: Sequence[Sequence[float | None]]) -> Floats:
    return np.array([np.nan if v is None else float(v) for vs in lists for v in vs], dtype=np.float64)


def _check_lengths(sizes: list[int], **columns: Sequence[Sequence[object]] | None) -> None:
    for name, lists in columns.items():
        if lists is None:
            continue
        found = [len(x) for x in lists]
        if found != sizes:
            at = next(
                (i for i, (a, b) in enumerate(zip(found, sizes, strict=False)) if a != b),
                min(len(found), len(sizes)),
            )
            raise InputError(
                f"set {at}: {name} and values differ in length ({found[at : at + 1]} and {sizes[at : at + 1]})"
            )


def histogram(sizes: Any) -> Counter[int]:
    """How often each size is there.

    >>> histogram([3, 1, 3])
    Counter({3: 2, 1: 1})
    """
    found, counts = np.unique(sizes, return_counts=True)
    return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))
