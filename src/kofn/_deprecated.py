"""Import paths of version 0.1 that were documented: they work until version 0.3, with a `DeprecationWarning`.

`kofn/__init__.py` asks this module about names that Python cannot find. `MOVED` maps a module to where its names are
now; `RENAMED` lists the names that are called something else, or are somewhere else than the rest of their module.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType

MOVED = {
    "kofn.checkpoint": "kofn.problems",
    "kofn.checkpoint.functional": "kofn.problems.functions",
    "kofn.checkpoint.sandbox": "kofn.sandbox.base",
    "kofn.choices": "kofn.analysis.curve_report",
    "kofn.comparing": "kofn.analysis.compare.systems",
    "kofn.curves": "kofn.analysis.pass_curve",
    "kofn.diagnose": "kofn.scoring.diagnostics",
    "kofn.engine": "kofn.parallel",
    "kofn.evaluate": "kofn.scoring.evaluate",
    "kofn.evaluation": "kofn.integrations.evaluation",
    "kofn.evaluation.__main__": "kofn.integrations.evaluation.__main__",
    "kofn.extract.boxed": "kofn.extract",
    "kofn.extract.filters": "kofn.extract.compatible",
    "kofn.extract.letter": "kofn.extract",
    "kofn.extract.mathematical": "kofn.extract",
    "kofn.extract.number": "kofn.extract",
    "kofn.fields": "kofn.core.fields",
    "kofn.generate.ask": "kofn.generate.llm_extractor",
    "kofn.generate.live": "kofn.generate.progress_file",
    "kofn.generate.prices": "kofn.generate.pricing",
    "kofn.generate.stages": "kofn.tasks.stages",
    "kofn.groupwise": "kofn.scoring.groupwise",
    "kofn.importers.rows": "kofn.importers.base",
    "kofn.judge.asking": "kofn.judge.client",
    "kofn.metrics.config": "kofn.metrics.metric_config",
    "kofn.metrics.exact": "kofn.metrics.text_match",
    "kofn.metrics.mathematical": "kofn.metrics.numeric",
    "kofn.metrics.structured": "kofn.metrics.json_metrics",
    "kofn.metrics.text": "kofn.metrics.text_match",
    "kofn.models.transformers": "kofn.models.hugging_face",
    "kofn.notebook": "kofn.core.document",
    "kofn.pytest_plugin": "kofn.integrations.pytest_plugin",
    "kofn.report": "kofn.runs",
    "kofn.report.frames": "kofn.runs.case_reports",
    "kofn.report.run": "kofn.runs.record",
    "kofn.running": "kofn.generate",
    "kofn.running.go": "kofn.generate.run",
    "kofn.running.settings": "kofn.scoring.configuration",
    "kofn.selectors": "kofn.analysis.selectors",
    "kofn.sets": "kofn.core.candidate_sets",
    "kofn.stats.corrected": "kofn.stats",
    "kofn.stats.estimate": "kofn.stats",
    "kofn.stats.judge": "kofn.stats",
    "kofn.training": "kofn.integrations.trainer",
    "kofn.types": "kofn.core.types",
}
RENAMED = {
    "kofn.comparing:Ask": "kofn.analysis.compare.systems:ComparisonOptions",
    "kofn.comparing:comparing": "kofn.analysis.compare.systems:compare_systems",
    "kofn.diagnose:dipping": "kofn.scoring.diagnostics:find_double_dipping",
    "kofn.evaluate:Options": "kofn.scoring.configuration:GradingConfig",
    "kofn.evaluate:Result": "kofn.scoring.result:Result",
    "kofn.generate.live:read_live": "kofn.generate.progress_file:read_progress",
    "kofn.judge.asking:Verdict": "kofn.judge.client:JudgeVerdict",
    "kofn.report:Plan": "kofn.scoring.configuration:ReportConfig",
    "kofn.report:write_run": "kofn.render.run_directory:write_run",
    "kofn.running.settings:Settings": "kofn.scoring.configuration:configure",
    "kofn.running:Settings": "kofn.scoring.configuration:configure",
    "kofn.running:run": "kofn.generate.run:run",
}


def find_spec(name: str) -> ModuleSpec | None:
    """The spec of a module that stands in for one of the old names; None for any other name."""
    if name not in MOVED:
        return None
    # as a package without a folder: the names below it are in the table, not on the disk
    return ModuleSpec(name, _Loader(), is_package=not name.endswith(".__main__"))


class _Loader(Loader):
    """Makes modules whose names are looked up where they are now."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002 - the protocol
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"Moved to {MOVED[module.__name__]}."
        setattr(module, "__getattr__", _lookup(module.__name__))  # noqa: B010 - mypy allows no method to be assigned

        parent, _, leaf = module.__name__.rpartition(".")
        if leaf in getattr(sys.modules[parent], "__all__", ()):
            sys.modules[parent].__class__ = _KeepsItsNames

    def get_code(self, name: str) -> CodeType:
        """The code of `python -m OLD.NAME`."""
        new = MOVED[name].removesuffix(".__main__")
        warnings.warn(f"python -m {name.removesuffix('.__main__')} is now python -m {new}", DeprecationWarning, 2)
        return compile(f"import runpy; runpy.run_module({new!r}, run_name='__main__')", "<moved>", "exec")


class _KeepsItsNames(ModuleType):
    """A package that keeps the functions it exports.

    Importing `kofn.extract.letter` makes Python set the attribute `letter` of `kofn.extract` to that module, but it is
    the extractor that people import from there.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self.__dict__.get("__all__", ())):
            super().__setattr__(name, value)


def _lookup(old: str) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:  # noqa: N807 - it becomes the module's own
        if name.startswith("__"):
            raise AttributeError(name)
        module, _, attribute = RENAMED.get(f"{old}:{name}", f"{MOVED[old]}:{name}").partition(":")
        try:
            value = getattr(import_module(module), attribute)
        except AttributeError:
            raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
        warnings.warn(f"{old}.{name} is now {module}.{attribute}", DeprecationWarning, stacklevel=2)
        return value

    return __getattr__
