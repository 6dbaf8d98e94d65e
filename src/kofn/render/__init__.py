"""Shows a run or an analysis: terminal, HTML, Markdown, JUnit, LaTeX, charts and notebooks.

In: runs, results and analyses. Out: text and pages; `write_run` writes a whole run directory.
Imports analysis, runs, scoring and the packages below them.
"""

from kofn.core.lazy import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__)  # the names are in __init__.pyi
