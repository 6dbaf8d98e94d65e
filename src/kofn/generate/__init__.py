"""Runs: ask models for every candidate, with limits and retries, store each reply, score what is stored.

In: a task and a `Config`. Out: a run directory, with every reply in its store.
Imports tasks, models and what lies below; `run.py` puts the parts together.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
