"""Which extractors an extraction audit compares, on which sample of the cases, from a query string."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kofn.analysis.extraction_audit import TEXTS, extractors_for
from kofn.errors import InputError, UnknownName
from kofn.registry import EXTRACTORS
from kofn.scoring.diagnostics import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.table import Table
    from kofn.viewer.run_view import RunView

# extractors without a required argument
PLAIN = tuple(name for name in EXTRACTORS if name not in ("none", "pattern", "json_field", "lm_eval_filter"))
STORED = "as in the run"  # the answers that the run stored, as if an extractor had given them
MAX_NAMES = 8
MAX_PATTERN = 500  # characters


class SampleSize(NamedTuple):
    """How much is read: cases, outputs and bytes of text, whichever limit is reached first."""

    cases: int
    outputs: int
    bytes: int


SAMPLE_SIZES = {
    size.cases: size for size in (SampleSize(2_000, 16_000, 4_000_000), SampleSize(10_000, 40_000, 16_000_000))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which extractors, on how many cases, drawn with which seed. No names: those that fit the outputs."""

    names: tuple[str, ...] = ()
    cases: int = 2_000
    seed: int = 0

    @classmethod
    def parse(cls, view: RunView, params: Mapping[str, str], ticked: Sequence[str]) -> AuditQuery:
        """The audit of a URL. A name must be one that the page offers; only patterns are free."""
        known = available_extractors(view)
        for name in ticked:
            if name not in known:
                raise UnknownName("extractor", name, list(known))
        names = tuple(dict.fromkeys((*ticked, *pattern_names(params.get("pattern", "")))))
        if len(names) > MAX_NAMES:
            raise InputError(f"{len(names)} extractors: choose at most {MAX_NAMES}")
        if names == (STORED,):
            raise InputError(f"`{STORED}` is no extractor: choose another to compare it with")
        cases, seed = params.get("cases", ""), params.get("seed", "")
        is_size = cases.isdigit() and cases.isascii() and int(cases[:9]) in SAMPLE_SIZES
        return cls(
            names=names,
            cases=int(cases) if is_size else min(SAMPLE_SIZES),
            seed=int(seed) if seed.isdigit() and seed.isascii() and len(seed) < 10 else 0,
        )


def pattern_names(regex: str) -> list[str]:
    r"""The extractor of a typed pattern: its first group, or the whole match where it has none.

    >>> pattern_names(r"x=(\d+)"), pattern_names("[0-9]+"), pattern_names(" ")
    (["pattern('x=(\\\\d+)')"], ["pattern('[0-9]+', group=0)"], [])
    """
    if not regex.strip():
        return []
    if len(regex) > MAX_PATTERN:
        raise InputError(f"pattern: {len(regex):,} characters are too many: at most {MAX_PATTERN}")
    try:
        groups = re.compile(regex).groups
    except (re.error, OverflowError, RecursionError) as problem:
        raise InputError(f"pattern {regex!r} is no regular expression: {problem}") from None
    return [f"pattern({regex!r})" if groups else f"pattern({regex!r}, group=0)"]


def available_extractors(view: RunView) -> tuple[str, ...]:
    """The extractors to choose from, the run's own first, if it is built in: anybody may have written the run."""
    extraction = {} if view.run.result is None else view.run.result.extraction
    own = str(extraction.get("extractor") or "")
    first = (own,) if own.partition("(")[0] in EXTRACTORS and own != "none" else ()
    stored = (STORED,) if view.sets is not None and view.sets.answers is not None and not first else ()
    return tuple(dict.fromkeys((*first, *stored, *PLAIN)))


def default_extractors(view: RunView, table: Table) -> tuple[str, ...]:
    """The run's own extractor and its relatives; without a built-in one, those that fit the outputs."""
    available = available_extractors(view)
    first = available[0]
    if first in PLAIN or "(" in first:
        family = FAMILIES.get(first.partition("(")[0], TEXTS)
        return tuple(dict.fromkeys((first, *family)))
    fitting = extractors_for(table)
    return (*fitting, STORED) if STORED in available else fitting
