"""kofn: evaluate every output, not just the first.

    import kofn
    print(kofn.score("outputs.jsonl"))                                # the table of `kofn score`
    kofn.score(rows, aggregate=["any_pass", "pass@5"]).estimates      # typed numbers
    kofn.run("starter", model="smollm2", repeats=5, out="runs/first")  # generate, score, report
    kofn.compare("runs/first", "runs/second", by="topic").to_polars() # every verb of the command line, and its options
    await kofn.arun("starter", model="smollm2")                       # the same where a loop is running
    kofn.aggregate("majority", values=[1, 0, 1], answers=["4", "5", "4"])

Everything is loaded when it is first used, so importing kofn is cheap.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kofn._version import __version__

_LAZY = {
    "run": "kofn.api",
    "score": "kofn.api",
    "compare": "kofn.api",
    "curve": "kofn.api",
    "check": "kofn.api",
    "plan": "kofn.api",
    "judge": "kofn.api",
    "calibrate": "kofn.api",
    "trend": "kofn.api",
    "verify": "kofn.api",
    "arun": "kofn.api",
    "ascore": "kofn.api",
    "acompare": "kofn.api",
    "acurve": "kofn.api",
    "acheck": "kofn.api",
    "aplan": "kofn.api",
    "ajudge": "kofn.api",
    "acalibrate": "kofn.api",
    "atrend": "kofn.api",
    "averify": "kofn.api",
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

    from kofn.api import (
        acalibrate,
        acheck,
        acompare,
        acurve,
        ajudge,
        aplan,
        arun,
        ascore,
        atrend,
        averify,
        calibrate,
        check,
        compare,
        curve,
        judge,
        plan,
        run,
        score,
        trend,
        verify,
    )
    from kofn.core.candidate_sets import CandidateSet, CandidateSets
    from kofn.core.types import Candidate, Case, Decision, Estimate, Score
    from kofn.errors import InputError, KofnError
    from kofn.generate.llm_extractor import extract_answer_with_llm
    from kofn.metrics import MetricConfig
    from kofn.registry import aggregator, extractor, metric
    from kofn.runs.record import load_run
    from kofn.scoring.groupwise import aggregate
    from kofn.scoring.result import Result


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kofn' has no attribute {name!r}")
    from importlib import import_module

    if name == "judge":
        return import_module("kofn.judge")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Front(ModuleType):
    """The front of the package. A package below it that has the name of a function can be called as the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and name in _LAZY:
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


class _CallablePackage(ModuleType):
    """`kofn.judge`: the package, and the function of the API."""

    @property
    def __wrapped__(self) -> Any:
        from importlib import import_module

        name = self.__name__.rpartition(".")[2]
        return getattr(import_module(_LAZY[name]), name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__wrapped__(*args, **options)


class _OldNames:
    """Asked for modules that nothing else finds: those of old import paths are in `kofn._deprecated`."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> "ModuleSpec | None":  # noqa: ARG004 - the protocol
        if not name.startswith("kofn."):
            return None
        from kofn._deprecated import find_spec

        return find_spec(name)


sys.meta_path.append(_OldNames)
sys.modules[__name__].__class__ = _Front
