"""Normalizes multiple-choice options and references: labelled options, and the label of the right one.

Data sets write the right option as its letter, its text, or its place (from 0 or from 1). A reference that matches
none of these is left as it is, and counted by `count_unmatched`.
"""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from kofn.extract.letter_answer import parse_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kofn.core.table import Table


def with_labels(table: Table, base: int | None = None) -> Table:
    """The table with its options labelled and its references as labels, where it has both.

    `base`: references that are places count from here; None: what the table's own say (`detect_base`).
    """
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return table
    if table.cases["reference"].dtype != pl.String:
        return table
    choices, references = table.cases["choices"].to_list(), table.cases["reference"].to_list()
    base = detect_base(choices, references) if base is None else base
    normalized = [normalize_choices(c, r, base) for c, r in zip(choices, references, strict=True)]
    labels = pl.Series("reference", [label for _, label in normalized], dtype=pl.String)
    owner = np.repeat(np.arange(table.n_cases), np.diff(table.offsets))
    options = pl.Series(
        "choices", [list(c) if c is not None else None for c, _ in normalized], dtype=pl.List(pl.String)
    )
    return replace(
        table,
        cases=table.cases.with_columns(options, labels),
        candidates=table.candidates.with_columns(labels.gather(owner).alias("reference")),
    )


def normalize_choices(
    choices: Sequence[str] | None, reference: str | None, base: int = 0
) -> tuple[Sequence[str] | None, str | None]:
    """(options, label of the right one).

    >>> normalize_choices(["London", "Paris"], "Paris"), normalize_choices(["London", "Paris"], "1")
    ((['London', 'Paris'], 'B'), (['London', 'Paris'], 'B'))
    >>> normalize_choices(["1", "2"], "B")
    (['A) 1', 'B) 2'], 'B')
    """
    if not choices or reference is None:
        return choices, reference
    options, answer = parse_choices(choices), reference.strip()
    # letters first: "B" may be the text of an option too, and means the letter far more often
    if answer.strip("().[] ").upper() in options.labels:
        return choices, answer.strip("().[] ").upper()
    if len(answer) == 1 and answer.upper() in ascii_uppercase[: len(choices)]:
        # the options only look like labels: they are texts, and the letters go by place
        return [f"{ascii_uppercase[i]}) {text}" for i, text in enumerate(choices)], answer.upper()
    texts = [t.strip().casefold() for t in (options.texts or choices)]
    # a text that two options share names neither
    if texts.count(answer.casefold()) == 1:
        return choices, options.labels[texts.index(answer.casefold())]
    if answer.isdecimal() and 0 <= int(answer) - base < len(choices):
        return choices, options.labels[int(answer) - base]
    return choices, reference


def detect_base(choices: Sequence[Sequence[str] | None], references: Sequence[str | None]) -> int:
    """Whether references that are places count from 0 or from 1: from 1 when none is 0 and one is the last place."""
    pairs = [(c, r.strip()) for c, r in zip(choices, references, strict=True) if c and r is not None]
    places = [(int(r), len(c)) for c, r in pairs if r.isdecimal()]
    return int(bool(places) and all(p > 0 for p, _ in places) and any(p == n for p, n in places))


def count_unmatched(table: Table) -> int:
    """Cases whose reference names none of their options."""
    if "choices" not in table.cases.columns or "reference" not in table.cases.columns:
        return 0
    if table.cases["reference"].dtype != pl.String:
        return 0
    pairs = zip(table.cases["choices"].to_list(), table.cases["reference"].to_list(), strict=True)
    return sum(r is not None and bool(c) and r not in parse_choices(c).labels for c, r in pairs)
