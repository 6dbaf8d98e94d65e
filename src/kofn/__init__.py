"""kofn: evaluate every output, not just the first.

    import kofn
    print(kofn.score("outputs.jsonl"))                                # the table of `kofn score`
    kofn.score(rows, aggregate=["any_pass", "pass@5"]).estimates      # typed numbers
    kofn.run("starter", model="smollm2", repeats=5, out="runs/first")  # generate, score, report
    kofn.aggregate("majority", values=[1, 0, 1], answers=["4", "5", "4"])

Everything is loaded when it is first used, so importing kofn is cheap.
"""

import sys
from typing import TYPE_CHECKING, Any

from kofn._version import __version__

_LAZY = {
    "run": "kofn.generate.run",
    "score": "kofn.api",
    "aggregate": "kofn.scoring.groupwise",
    "aggregator": "kofn.registry",
    "extractor": "kofn.registry",
    "metric": "kofn.registry",
    "extract_answer_with_llm": "kofn.generate.llm_extractor",
    "load_run": "kofn.runs.record",
    "CandidateSet": "kofn.core.candidate_sets",
    "CandidateSets": "kofn.core.candidate_sets",
    "Result": "kofn.scoring.result",
    "Case": "kofn.core.types",
    "Candidate": "kofn.core.types",
    "Score": "kofn.core.types",
    "Estimate": "kofn.core.types",
    "Decision": "kofn.core.types",
    "MetricConfig": "kofn.metrics",
    "KofnError": "kofn.errors",
    "InputError": "kofn.errors",
}

__all__ = [*_LAZY, "__version__"]

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from kofn.api import score
    from kofn.core.candidate_sets import CandidateSet, CandidateSets
    from kofn.core.types import Candidate, Case, Decision, Estimate, Score
    from kofn.errors import InputError, KofnError
    from kofn.generate.llm_extractor import extract_answer_with_llm
    from kofn.generate.run import run
    from kofn.metrics import MetricConfig
    from kofn.registry import aggregator, extractor, metric
    from kofn.runs.record import load_run
    from kofn.scoring.groupwise import aggregate
    from kofn.scoring.result import Result


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kofn' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _OldNames:
    """Asked for modules that nothing else finds: those of old import paths are in `kofn._deprecated`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> "ModuleSpec | None":  # noqa: ARG004 - the protocol
        if not name.startswith("kofn."):
            return None
        from kofn._deprecated import find_spec

        return find_spec(name)


sys.meta_path.append(_OldNames)
