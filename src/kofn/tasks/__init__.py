"""Tasks: what is asked of a model, on which data, and how the answers are graded.

In: a task file (YAML, or one of lm-evaluation-harness), a mapping, or a name. Out: a `Task` with its items and prompts.
Imports models (the types alone), scoring and what lies below; it calls no model.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
