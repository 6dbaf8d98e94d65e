"""What the tests of the source tree share: its modules, and every import between them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

SRC = Path(__file__).parents[2] / "src" / "kofn"

# The only list of layers, lowest first. A package imports only from lines above its own; packages of one line never
# import each other. docs/architecture.md is generated from it.
LAYERS: list[tuple[tuple[str, ...], str]] = [
    (("errors", "_version"), "what can go wrong"),
    (("core",), "nouns: types, tables, candidate sets, documents"),
    (("extract", "metrics", "aggregators", "stats"), "the pure catalog"),
    (("registry",), "names of the catalog, loaded on demand"),
    (("importers", "testing"), "files of any tool -> Table; the laws for plugin authors"),
    (("scoring",), "Table -> Result"),
    (("runs",), "the run directory"),
    (("analysis",), "several runs, several n, several selectors -> findings"),
    (("render",), "runs and findings -> terminal, HTML, Markdown, JUnit"),
    (("parallel", "models"), "processes and machines; every call to a model"),
    (("tasks",), "what to ask, on which data"),
    (("generate",), "a whole run, from prompts to its directory"),
    (("judge", "exporters", "sandbox"), "models that grade; files for other tools; isolated programs"),
    (("problems",), "programs against weighted test cases"),
    (("api",), "kofn.score"),
    (("integrations",), "kofn inside other tools"),
    (("viewer",), "the web application"),
    (("cli",), "the command line"),
    (("__main__",), "python -m kofn"),
]
LAYER = {name: i for i, (names, _) in enumerate(LAYERS) for name in names}


class Import(NamedTuple):
    """One import of a module of kofn: what it names, where, and whether it is inside a function."""

    target: str
    line: int
    in_function: bool


def module_name(path: Path) -> str:
    """The dotted name of a file."""
    parts = ("kofn", *path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; files in template folders are data."""
    files = sorted(p for p in SRC.rglob("*.py") if "templates" not in p.parts)
    return {module_name(path): path for path in files}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(modules()[module].read_text())


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """What a module imports of kofn, at its top, in functions, and for type checkers."""
    found = []

    def visit(node: ast.AST, in_function: bool) -> None:
        found.extend(Import(target, getattr(node, "lineno", 0), in_function) for target in _targets(node))
        inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree_of(module), in_function=False)
    return tuple(found)


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [a.name for a in node.names if a.name.split(".")[0] == "kofn"]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.level == 0, "imports are absolute"
    if node.module is None or node.module.split(".")[0] != "kofn":
        return []
    named = [f"{node.module}.{a.name}" for a in node.names]
    return list(dict.fromkeys(name if name in modules() else node.module for name in named))


def package_of(module: str) -> str:
    """The package below kofn, or the module at its root."""
    return module.split(".")[1]


def cycles() -> list[list[str]]:
    """Groups of modules that import each other, directly or through others (Tarjan's strongly connected components).

    The front of the package, `kofn/__init__.py`, names everything and is imported by nothing but users.
    """
    graph = {m: {i.target for i in imports_of(m)} - {m, "kofn"} for m in modules() if m != "kofn"}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def connect(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph.get(node, ()):
            if target not in index:
                connect(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in graph:
        if node not in index:
            connect(node)
    return found


def summary_of(module: str) -> str:
    """The first paragraph's first line of a module's docstring."""
    return (ast.get_docstring(tree_of(module)) or "").partition("\n")[0]
