"""Splits cases into a design and a test part by a hash of their ids.

Choose a selector, a prompt or a threshold on the design cases, and report on the test cases.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from kofn.core.table import Table

PARTS = ("design", "test")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One part of the cases. A case's part follows from its id (or its cluster's name) and the seed alone.

    So a case that is added later moves no other one, two files of the same cases split alike, and cases of one
    cluster stay together. `share` of the cases, about, are design.
    """

    part: str
    share: float = 0.5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise InputError(f"split: expected design or test, not {self.part!r}")
        if not 0 < self.share < 1:
            raise InputError(f"split: the share of design cases must lie between 0 and 1, not {self.share}")

    @classmethod
    def parse(cls, text: str) -> Split:
        """From `PART`, `PART:SHARE` or `PART:SHARE:SEED`.

        >>> Split.parse("test:0.3:7")
        Split(part='test', share=0.3, seed=7)
        """
        part, *rest = text.split(":")
        try:
            share, seed = (float(rest[0]) if rest else 0.5), (int(rest[1]) if len(rest) > 1 else 0)
        except ValueError:
            # too many parts, so that the one error below names the format
            rest = ["", "", ""]
        if len(rest) > 2:
            raise InputError(f"split {text!r}: expected design or test, then :SHARE and :SEED, such as test:0.3:7")
        return cls(part=part, share=share, seed=seed)

    def __str__(self) -> str:
        return f"{self.part}:{self.share:g}:{self.seed}"

    def mask(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which cases, by id or cluster, belong to the part.

        >>> names = [f"q{i}" for i in range(1000)]
        >>> design, test = (Split(part=part, share=0.3).mask(names) for part in ("design", "test"))
        >>> bool((design ^ test).all()), 250 < int(design.sum()) < 350
        (True, True)
        """
        # a hash is a uniform number below 2^64; blake2b, for Python's own hash differs from process to process
        below = int(self.share * 2**64)
        key = str(self.seed).encode()
        design = [
            int.from_bytes(blake2b(n.encode(errors="surrogatepass"), digest_size=8, key=key).digest()) < below
            for n in names
        ]
        found = np.array(design, dtype=np.bool_)
        return found if self.part == "design" else ~found

    def of(self, table: Table) -> Table:
        """The part of a table's cases; by cluster where it has some."""
        some = self.of_or_none(table)
        if some is None:
            raise InputError(
                f"split {self}: no case belongs to this part of {table.n_cases}: take another share or seed"
            )
        return some

    def of_or_none(self, table: Table) -> Table | None:
        """As `of`; None where no case belongs to the part."""
        names = table.cases["case_id"].to_list()
        if "cluster" in table.cases.columns:
            names = [c if c is not None else n for c, n in zip(table.cases["cluster"].to_list(), names, strict=True)]
        kept = self.mask(names)
        return table.select_cases(kept) if kept.any() else None

    def to_dict(self) -> dict[str, Any]:
        """For the manifest."""
        return {"part": self.part, "share": self.share, "seed": self.seed}


def draw_cases(table: Table, n: int, seed: int = 0) -> Table:
    """n of a table's cases with all their candidates, drawn without regard to what they hold, in their order."""
    kept = np.zeros(table.n_cases, dtype=np.bool_)
    kept[np.random.default_rng(seed).choice(table.n_cases, min(n, table.n_cases), replace=False)] = True
    return table.select_cases(kept)
