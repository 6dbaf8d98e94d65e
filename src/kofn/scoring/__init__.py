"""Scores a table of outputs: answers, metrics, candidate sets, estimates, diagnostics and warnings.

In: a `Table` and `Options`. Out: a `Result`.
Imports core, extract, metrics, aggregators, stats, registry and importers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.scoring import evaluate as evaluate
    from kofn.scoring.checklist import check_use as check_use
    from kofn.scoring.options import Options as Options
    from kofn.scoring.policy import GroupType as GroupType
    from kofn.scoring.policy import PassPolicy as PassPolicy
    from kofn.scoring.policy import Requirement as Requirement
    from kofn.scoring.result import estimate_dict as estimate_dict
    from kofn.scoring.splits import Split as Split
    from kofn.scoring.splits import draw_cases as draw_cases

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.scoring.checklist": ("check_use",),
        "kofn.scoring.options": ("Options",),
        "kofn.scoring.policy": (
            "GroupType",
            "PassPolicy",
            "Requirement",
        ),
        "kofn.scoring.result": ("estimate_dict",),
        "kofn.scoring.splits": (
            "Split",
            "draw_cases",
        ),
    },
    submodules=("evaluate",),
)
