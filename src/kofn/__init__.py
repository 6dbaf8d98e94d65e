"""kofn: evaluate every output, not just the first.

    import kofn
    print(kofn.score("outputs.jsonl"))                                # the table of `kofn score`
    kofn.score(rows, aggregate=["any_pass", "pass@5"]).estimates      # typed numbers
    kofn.run("starter", model="smollm2", repeats=5, out="runs/first")  # generate, score, report
    kofn.aggregate("majority", values=[1, 0, 1], answers=["4", "5", "4"])

Everything is loaded when it is first used, so importing kofn is cheap.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "run": "kofn.running",
    "score": "kofn.api",
    "aggregate": "kofn.api",
    "aggregator": "kofn.registry",
    "extractor": "kofn.registry",
    "metric": "kofn.registry",
    "extract_answer_with_llm": "kofn.generate.ask",
    "load_run": "kofn.report.run",
    "CandidateSet": "kofn.sets",
    "CandidateSets": "kofn.sets",
    "Result": "kofn.evaluate",
    "Case": "kofn.types",
    "Candidate": "kofn.types",
    "Score": "kofn.types",
    "Estimate": "kofn.types",
    "Decision": "kofn.types",
    "MetricConfig": "kofn.metrics",
    "KofnError": "kofn.errors",
    "InputError": "kofn.errors",
}

__all__ = [*_LAZY, "__version__"]

if TYPE_CHECKING:
    from kofn.api import aggregate, score
    from kofn.errors import InputError, KofnError
    from kofn.evaluate import Result
    from kofn.generate.ask import extract_answer_with_llm
    from kofn.metrics import MetricConfig
    from kofn.registry import aggregator, extractor, metric
    from kofn.report.run import load_run
    from kofn.running import run
    from kofn.sets import CandidateSet, CandidateSets
    from kofn.types import Candidate, Case, Decision, Estimate, Score


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kofn' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
