"""The pages of docs/reference: which names there are, and what each verb's --help says.

    python benchmarks/reference.py           # writes docs/reference
    python benchmarks/reference.py --check   # writes nothing; exit code 1 where a page is not what it would be

What a name means is in its docstring: a page says only where it is (`::: kofn.stats.wilson`), and the site fills it in.
So a page changes when names do, and a test runs --check.
"""

from __future__ import annotations

import sys
from importlib import import_module
from inspect import getmodule, iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import kofn
from kofn import registry

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
WIDTH = 100
SHORT_FORMS = {"pass_at": "pass@5", "pass_hat": "pass^5", "maj_at": "maj@5", "selected_at": "selected@5"}
WORDS = {
    "aggregators": """
An aggregator reduces a candidate set to one number. Name it with `-a NAME`, with parameters as in `-a 'ndcg(k=3)'`;
`pass@5`, `pass^5`, `maj@5` and `selected@5` are short forms. In Python: `kofn.aggregator(NAME)`,
`kofn.aggregate(NAME, values=...)`. For a comparison of the rules see [what every number means](../numbers.md).
""",
    "extractors": """
An extractor finds the answer in a text, or none. Name it with `--extract NAME`, with parameters as in
`--extract "pattern('x=(.*)')"`. In Python: `kofn.extractor(NAME)`.
""",
    "metrics": """
A metric compares a prediction with a reference. Name it with `--metric NAME`, with parameters as in
`--metric 'numeric(tolerance=0.01)'`. In Python: `kofn.metric(NAME)`. Any callable works as a metric:
[metrics of other packages](../numbers.md#metrics-of-other-packages).
""",
    "models": """
A model is named with `--model SPEC`. For their setup see [models](../models.md).
""",
    "python": """
One function per command of the [command line](cli.md), with its options as keywords: [the Python API](../api.md). With
the prefix `a` each function is awaitable: `await kofn.ascore(rows)`. Everything is loaded on first use, so
`import kofn` is fast. Errors in your input raise `kofn.InputError`.
""",
    "groupwise": """
The group-wise functions that many projects copy, as an import: [migration](../migration.md).
""",
    "formats": """
Files are recognized by their content; `--format NAME` overrides it. `kofn export --to PATH` chooses by the
extension, `--as NAME` overrides it. For details see [logs of other tools](../import.md), [lm-eval](../lm_eval.md),
[Inspect](../inspect.md).
""",
    "stats": """
Pure functions on arrays: no file, no clock, no shared random state. For the reasons behind them see
[the statistics, explained](../statistics/index.md).
""",
    "testing": """
`kofn.testing` contains the laws that every aggregator obeys, for authors of plugins. For tests that run n times
see [pytest](../pytest.md).
""",
}
REGISTRIES = ("aggregators", "extractors", "metrics", "models")


def main() -> None:
    pages = {"cli": cli_page(), "python": python_page(), "formats": formats_page(), "stats": stats_page()}
    pages |= {kind: registry_page(kind) for kind in REGISTRIES}
    pages |= {"testing": testing_page(), "index": index_page()}
    if "--check" in sys.argv:
        stale = [name for name, text in pages.items() if _read(name) != text]
        if stale:
            sys.exit(f"docs/reference: {', '.join(stale)} not as python benchmarks/reference.py would write")
        return
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages.items():
        (FOLDER / f"{name}.md").write_text(text)
    print(f"{len(pages)} pages in {FOLDER}")


def _read(name: str) -> str:
    path = FOLDER / f"{name}.md"
    return path.read_text() if path.exists() else ""


def index_page() -> str:
    counts = {kind: len(registry.TABLES[kind[:-1]]) for kind in REGISTRIES}
    return f"""# Reference

Generated from the code by `python benchmarks/reference.py`; a test compares the two.

| page | |
|---|---|
| [Command line](cli.md) | every command and every option, as in `--help` |
| [Python](python.md) | the names in `import kofn`, and the group-wise functions |
| [Aggregators](aggregators.md) | {counts["aggregators"]} ways to reduce a candidate set to one number |
| [Extractors](extractors.md) | {counts["extractors"]} ways to find the answer in a text |
| [Metrics](metrics.md) | {counts["metrics"]} ways to compare an answer with a reference |
| [Models](models.md) | {counts["models"]} backends |
| [Importers and exporters](formats.md) | formats of other tools that kofn reads and writes |
| [Statistics](stats.md) | `kofn.stats`: intervals, comparisons, judges, variance, power |
| [Testing](testing.md) | laws for your own aggregators |
| [What every number means](../numbers.md), [glossary](../glossary.md) | the rules in one place |
"""


def cli_page() -> str:
    """Every verb with its help, and the verbs below it."""
    from kofn.cli import kofn as program

    parts = ["# Command line\n\nThe `--help` of each command. For their use see the [how-to guides](../how-to.md).\n"]
    top = _context(program, "kofn")
    parts += [f"## {ctx.command_path}\n\n```text\n{ctx.get_help()}\n```\n" for ctx in walk(top)]
    return "\n".join(parts)


def walk(ctx: click.Context) -> Iterator[click.Context]:
    """A command, then those below it, in the order of its help."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            yield from walk(_context(command, name, ctx))


def _context(command: click.Command, name: str, parent: click.Context | None = None) -> click.Context:
    return click.Context(command, parent, name, terminal_width=WIDTH, **command.context_settings)


def python_page() -> str:
    """`kofn.__all__` by what it is, and the functions of kofn.scoring.groupwise."""
    names = [name for name in kofn.__all__ if not name.startswith("_")]
    functions = [n for n in names if not isinstance(getattr(kofn, n), type) and not _is_awaited(n)]
    classes = [n for n in names if isinstance(getattr(kofn, n), type)]
    groupwise = import_module("kofn.scoring.groupwise")
    pasted = [n for n, f in vars(groupwise).items() if not n.startswith("_") and getmodule(f) is groupwise]
    return "\n".join(
        [
            f"# Python\n{WORDS['python']}",
            "## Functions\n",
            *(_entry(_path(getattr(kofn, n)), f"kofn.{n}") for n in functions),
            "## Classes\n",
            *(_entry(_path(getattr(kofn, n)), f"kofn.{n}") for n in classes),
            f"## kofn.scoring.groupwise\n{WORDS['groupwise']}",
            *(_entry(f"kofn.scoring.groupwise.{n}", n) for n in pasted),
        ]
    )


def registry_page(kind: str) -> str:
    """Every name of a kind, with the docstring of what it names."""
    table = registry.TABLES[kind[:-1]]
    entries = [_entry(_path(_load(target)), _heading(name), level=2, members=False) for name, target in table.items()]
    return "\n".join([f"# {kind.capitalize()}\n{WORDS[kind]}", *entries])


def _heading(name: str) -> str:
    return f"{name}, {SHORT_FORMS[name]}" if name in SHORT_FORMS else name


def formats_page() -> str:
    """Importers and exporters: each is one object that says its name and what it knows."""
    from kofn.importers import PLAIN

    read = PLAIN | {name: one.what for name, one in registry.importers().items()}
    written = {name: one.what for name, one in registry.exporters().items()}
    tables = [
        f"## {title}\n\n| name | |\n|---|---|\n" + "".join(f"| `{name}` | {what} |\n" for name, what in found.items())
        for title, found in (("Importers", read), ("Exporters", written))
    ]
    return "\n".join(
        [
            f"# Importers and exporters\n{WORDS['formats']}",
            *tables,
        ]
    )


def stats_page() -> str:
    """`kofn.stats.__all__`, functions first."""
    stats = import_module("kofn.stats")
    things = {name: getattr(stats, name) for name in stats.__all__ if callable(getattr(stats, name))}
    functions = [n for n, thing in things.items() if not isinstance(thing, type)]
    return "\n".join(
        [
            f"# Statistics\n{WORDS['stats']}",
            "## Functions\n",
            *(_entry(_path(things[n]), n) for n in functions),
            "## Results\n",
            *(_entry(_path(thing), n) for n, thing in things.items() if n not in functions),
        ]
    )


def testing_page() -> str:
    testing = import_module("kofn.testing")
    names = [n for n, f in vars(testing).items() if not n.startswith("_") and getmodule(f) is testing]
    return "\n".join(
        [
            f"# Testing\n{WORDS['testing']}",
            *(_entry(f"kofn.testing.{n}", n, level=2) for n in names),
        ]
    )


def _entry(path: str, heading: str, *, level: int = 3, members: bool = True) -> str:
    shown = "" if members else "      members: false\n"
    return f'::: {path}\n    options:\n      heading: "{heading}"\n      heading_level: {level}\n{shown}'


def _is_awaited(name: str) -> bool:
    """Whether this is a function to be awaited, which has the page entry of the plain one."""
    return iscoroutinefunction(getattr(kofn, name))


def _path(thing: Any) -> str:
    thing = getattr(thing, "__wrapped__", thing)  # a package that can be called, an awaited function
    return f"{thing.__module__}.{thing.__qualname__}"


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


if __name__ == "__main__":
    main()
