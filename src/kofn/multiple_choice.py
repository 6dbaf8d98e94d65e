"""Options and references of multiple-choice cases, put in one form: labelled options, and the label of the right one.

Data sets write the right option as its letter, its text, or its place (from 0 or from 1). What cannot be told is left
as it is, and counted by `unclear`.
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from kofn.extract.letter import options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.table import Table


def lettered(table: Table, base: int | None = None) -> Table:
    """The table with its options labelled and its references as labels, where it has both.

    `base`: references that are places count from here; None: what the table's own say (`first_place`).
    """
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return table
    if table.cases["reference"].dtype != pl.String:
        return table
    choices, references = table.cases["choices"].to_list(), table.cases["reference"].to_list()
    base = first_place(choices, references) if base is None else base
    settled = [settle(c, r, base) for c, r in zip(choices, references, strict=True)]
    labels = pl.Series("reference", [label for _, label in settled], dtype=pl.String)
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    options = pl.Series("choices", [list(c) if c is not None else None for c, _ in settled], dtype=pl.List(pl.String))
    return replace(
        table,
        cases=table.cases.with_columns(options, labels),
        candidates=table.candidates.with_columns(labels.gather(owner).alias("reference")),
    )


def settle(
    choices: Sequence[str] | None, reference: str | None, base: int = 0
) -> tuple[Sequence[str] | None, str | None]:
    """(options, label of the right one).

    >>> settle(["London", "Paris"], "Paris"), settle(["London", "Paris"], "1"), settle(["1", "2"], "B")
    ((['London', 'Paris'], 'B'), (['London', 'Paris'], 'B'), (['A) 1', 'B) 2'], 'B'))
    """
    if not choices or reference is None:
        return choices, reference
    options, wanted = options_of(choices), reference.strip()
    if wanted.strip("().[] ").upper() in options.labels:
        return choices, wanted.strip("().[] ").upper()
    if len(wanted) == 1 and wanted.upper() in ascii_uppercase[: len(choices)]:
        # the options only look like labels: they are texts, and the letters go by place
        return [f"{ascii_uppercase[i]}) {text}" for i, text in enumerate(choices)], wanted.upper()
    texts = [t.strip().casefold() for t in (options.texts or choices)]
    if texts.count(wanted.casefold()) == 1:
        return choices, options.labels[texts.index(wanted.casefold())]
    if wanted.isdecimal() and 0 <= int(wanted) - base < len(choices):
        return choices, options.labels[int(wanted) - base]
    return choices, reference


def first_place(choices: Sequence[Sequence[str] | None], references: Sequence[str | None]) -> int:
    """Whether references that are places count from 0 or from 1: from 1 when none is 0 and one is the last place."""
    pairs = [(c, r.strip()) for c, r in zip(choices, references, strict=True) if c and r is not None]
    places = [(int(r), len(c)) for c, r in pairs if r.isdecimal()]
    return int(bool(places) and all(p > 0 for p, _ in places) and any(p == n for p, n in places))


def unclear(table: Table) -> int:
    """Cases whose reference names none of their options."""
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return 0
    if table.cases["reference"].dtype != pl.String:
        return 0
    pairs = zip(table.cases["choices"].to_list(), table.cases["reference"].to_list(), strict=True)
    return sum(r is not None and bool(c) and r not in options_of(c).labels for c, r in pairs)
