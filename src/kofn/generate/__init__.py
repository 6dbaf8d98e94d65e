"""Runs: ask models for every candidate, with limits and retries, store each reply, score what is stored.

In: a task and `Settings`. Out: a run directory, with every reply in its store.
Imports tasks, models and what lies below; `run.py` puts the parts together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.generate import progress_line as progress_line
    from kofn.generate.limits import Limits as Limits
    from kofn.generate.llm_extract_table import extract_table_with_llm as extract_table_with_llm
    from kofn.generate.preparation import directory_of as directory_of
    from kofn.generate.preparation import first_prompts as first_prompts
    from kofn.generate.preparation import prepare as prepare
    from kofn.generate.prepared_run import PreparedRun as PreparedRun
    from kofn.generate.progress_line import clock_time as clock_time
    from kofn.generate.run import forecast as forecast
    from kofn.generate.run import run_in as run_in
    from kofn.generate.settings import DEFAULT_READER as DEFAULT_READER
    from kofn.generate.settings import Settings as Settings

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.generate.limits": ("Limits",),
        "kofn.generate.llm_extract_table": ("extract_table_with_llm",),
        "kofn.generate.preparation": (
            "directory_of",
            "first_prompts",
            "prepare",
        ),
        "kofn.generate.prepared_run": ("PreparedRun",),
        "kofn.generate.progress_line": ("clock_time",),
        "kofn.generate.run": (
            "forecast",
            "run_in",
        ),
        "kofn.generate.settings": (
            "DEFAULT_READER",
            "Settings",
        ),
    },
    submodules=("progress_line",),
)
