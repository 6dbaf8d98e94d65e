"""docs/architecture.md, made from the code: `python -m tests.repository.architecture` writes it, a test compares it.

The tree and the layers come from the package itself: each line is the first line of a module's docstring. The two walks
name the modules that a record passes; the test runs both commands and checks that they do pass there, in this order.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.repository.source_tree import LAYERS, SRC, modules, summary_of

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"

# `kofn score FILE --out DIR`
SCORE = [
    ("cli.score_verb", "parses the options"),
    ("importers.sources", "finds the files: paths, patterns, folders, compressed files, addresses"),
    ("importers.reading", "chooses the importer of each file by its content"),
    ("importers.jsonl", "reads most JSON lines as columns, and those that differ one at a time"),
    ("core.candidate_sets", "groups the rows by case: the only place that does"),
    ("scoring.evaluate", "runs the steps below"),
    ("core.table", "holds the rows, one type per column, and looks up fields of the cases"),
    ("scoring.grade", "extracts, scores, and builds the candidate sets"),
    ("extract.extractor_choice", "chooses the extractor, and extracts all answers, as polars expressions where it can"),
    ("metrics.numeric", "compares answers with references; which metric is `metrics/base.py`'s choice"),
    ("scoring.result", "counts everything else that a result reports, and stores it"),
    ("aggregators.base", "reduces each set to one value"),
    ("stats.resample", "turns one value per case into an interval; `stats/estimates.py` picks the method"),
    ("scoring.diagnostics", "explains the numbers, and warns"),
    ("render.run_directory", "writes the run directory, all files at once, and the line of results.jsonl"),
    ("runs.report_builder", "builds the case reports as columns, and their pass policy"),
    ("runs.case_reports", "defines the columns of reports.parquet, and scores their values"),
    ("runs.manifest", "builds run.json"),
    ("runs.run_tables", "builds candidates.parquet, cases.parquet, reports.parquet and evaluation.json"),
    ("render.report_html", "collects what report.html shows"),
    ("render.charts", "builds its charts"),
    ("render.plot", "draws them as SVG"),
    ("render.page", "combines everything into one file"),
    ("render.result_text", "prints the table"),
]
# `kofn run TASK --out DIR`, up to where the candidates are a table; from there on a run is scored as above
RUN = [
    ("cli.run_verb", "parses the options"),
    ("generate.preparation", "validates the task, its cases, prompts and models before any call"),
    ("tasks.load", "reads the task file"),
    ("tasks.items", "turns the records of its data set into cases"),
    ("tasks.recipe", "fills the prompt of each stage"),
    ("models.factory", "opens the models by name"),
    ("generate.run", "runs the steps below, and turns the replies into a scored run directory"),
    ("generate.store", "keeps every reply in SQLite before it counts as done"),
    ("generate.runner", "takes every case through its stages: finds stored replies, and requests the rest"),
    ("generate.calls", "makes the calls: concurrency, retries, budget"),
    ("generate.candidate_table", "builds the table of candidates"),
    ("scoring.grade", "and so on, as for `kofn score`"),
]
# data that ships with the package, by the package that reads it
DATA = {
    "core": [("core/warnings.toml", "the registry of warnings: severity, sentence and explanation of every code")],
    "render": [
        ("render/templates/", "templates, styles, scripts of pages; colours: page.css, light or dark: theme.js")
    ],
    "tasks": [("tasks/*.yaml", "the built-in tasks, one file each"), ("tasks/data/", "the data of the task `starter`")],
    "generate": [("generate/prices.yaml", "list prices of models")],
    "judge": [("judge/rubrics/", "the built-in rubrics, one file each")],
    "problems": [("problems/templates/", "what `kofn new problem` starts from")],
    "viewer": [("viewer/templates/", "templates, styles and scripts of the viewer alone")],
}
_HEAD = """# Architecture

<!-- Made from the code by `python -m tests.repository.architecture`; a test compares them. Edit docstrings. -->

Data flows one way. A package imports only from layers below its own, modules never form an import cycle, and
imports inside functions are reserved for heavy third-party packages. `tests/repository/test_layers.py` enforces this.

To find the place for a change, see [CONTRIBUTING](../CONTRIBUTING.md), which names the right file for typical ones.
Paths are below `src/`.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_layers(), *_walks(), *_tree()])


def _layers() -> list[str]:
    rows = [
        f"| {len(LAYERS) - i} | {', '.join(f'`{name}`' for name in names if name != '_version')} | {what} |"
        for i, (names, what) in enumerate(reversed(LAYERS))
    ]
    return ["## Layers, highest first", "", "| | packages and modules | what they hold |", "|---|---|---|", *rows, ""]


def _walks() -> list[str]:
    lines = ["## The path of one record", ""]
    for title, steps in (("`kofn score FILE --out DIR`", SCORE), ("`kofn run TASK --out DIR`", RUN)):
        lines += [f"### {title}", ""]
        lines += [f"{i}. `{_path_of(f'kofn.{name}')}` {what}" for i, (name, what) in enumerate(steps, 1)]
        lines.append("")
    lines += [
        "Everything from `extract/` to `stats/` is pure: no I/O, no clock, no global random state. So a stored run can",
        "be scored again with another extractor, metric or aggregator without calling a model.",
        "",
    ]
    return lines


def _tree() -> list[str]:
    lines = ["## The tree", "", "Packages are listed in the order of their layers, lowest first.", ""]
    root = [m for m, path in modules().items() if path.parent == SRC]
    lines += ["### kofn/", "", *(_line(m) for m in root), ""]
    order = [name for names, _ in LAYERS for name in names if (SRC / name).is_dir()]
    for package in order:
        lines += [f"### kofn/{package}/", "", summary_of(f"kofn.{package}"), ""]
        inside = [m for m in modules() if m.startswith(f"kofn.{package}.")]
        lines += [_line(m) for m in inside if summary_of(m)]
        lines += [f"- `{place}` — {what}" for place, what in DATA.get(package, ())]
        lines.append("")
    return lines


def _line(module: str) -> str:
    path = modules()[module]
    shown = path.relative_to(SRC).as_posix().removesuffix("__init__.py") or "__init__.py"
    return f"- `{shown}` — {summary_of(module)}"


def _path_of(module: str) -> str:
    return modules()[module].relative_to(SRC).as_posix()


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"{PAGE} written\n")
