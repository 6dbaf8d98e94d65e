"""Shows a run or an analysis: terminal, HTML, Markdown, JUnit, LaTeX, charts and notebooks.

In: runs, results and analyses. Out: text and pages; `write_run` writes a whole run directory.
Imports analysis, runs, scoring and the packages below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.lazy import lazy_exports

if TYPE_CHECKING:
    from kofn.render import run_markdown as run_markdown
    from kofn.render import run_summary as run_summary
    from kofn.render.audit_html import audit_page as audit_page
    from kofn.render.audit_text import format_audit as format_audit
    from kofn.render.check_summary import append_summary as append_summary
    from kofn.render.comparison_html import comparison_page as comparison_page
    from kofn.render.comparison_table import comparison_latex as comparison_latex
    from kofn.render.comparison_table import comparison_markdown as comparison_markdown
    from kofn.render.comparison_text import format_comparison as format_comparison
    from kofn.render.curve_html import curve_page as curve_page
    from kofn.render.curve_text import format_curve as format_curve
    from kofn.render.junit import write_junit as write_junit
    from kofn.render.page import report_page as report_page
    from kofn.render.rescore_diff import parent_lines as parent_lines
    from kofn.render.result_text import format_result as format_result
    from kofn.render.run_directory import write_run as write_run
    from kofn.render.run_summary import decode_stored as decode_stored
    from kofn.render.run_summary import files_of as files_of
    from kofn.render.run_summary import status_of as status_of
    from kofn.render.run_text import format_run as format_run
    from kofn.render.trend_html import trend_page as trend_page
    from kofn.render.trend_text import format_trend as format_trend

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "kofn.render.audit_html": ("audit_page",),
        "kofn.render.audit_text": ("format_audit",),
        "kofn.render.check_summary": ("append_summary",),
        "kofn.render.comparison_html": ("comparison_page",),
        "kofn.render.comparison_table": (
            "comparison_latex",
            "comparison_markdown",
        ),
        "kofn.render.comparison_text": ("format_comparison",),
        "kofn.render.curve_html": ("curve_page",),
        "kofn.render.curve_text": ("format_curve",),
        "kofn.render.junit": ("write_junit",),
        "kofn.render.page": ("report_page",),
        "kofn.render.rescore_diff": ("parent_lines",),
        "kofn.render.result_text": ("format_result",),
        "kofn.render.run_directory": ("write_run",),
        "kofn.render.run_summary": (
            "decode_stored",
            "files_of",
            "status_of",
        ),
        "kofn.render.run_text": ("format_run",),
        "kofn.render.trend_html": ("trend_page",),
        "kofn.render.trend_text": ("format_trend",),
    },
    submodules=("run_markdown", "run_summary"),
)
