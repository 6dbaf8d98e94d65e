"""Candidates and their grades, written as files for other tools.

In: `kofn.runs.load.GradedCandidates` and a path. Out: the file, and a line for each thing that its format cannot say.
Imports runs and what is below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.exporters.base import Exporter as Exporter
    from kofn.exporters.base import check_place as check_place

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.exporters.base": (
            "Exporter",
            "check_place",
        ),
    },
)
