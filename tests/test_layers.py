"""Data flows one way: a file imports only from its own folder or from a lower layer."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "kofn"

LAYERS = [
    {"types", "errors"},  # nouns
    {"sets", "values", "fields", "table"},  # columns and plain values
    {"extract", "metrics", "aggregators", "stats", "policy"},  # the pure catalogue
    {
        "registry",
        "multiple_choice",
        "scoring",
        "facts",
        "diagnose",
        "evaluate",
        "parts",
        "groupwise",
        "present",
        "notebook",
        "testing",
        "curves",
        "best_of",
        "choices",
        "planning",
        "checks",
        "trends",
        "selectors",
        "splits",
        "checklist",
        "differences",
        "comparing",
        "graders",
        "auditing",
        "contests",
    },  # composition, no I/O
    {"importers", "report", "models", "api", "yamlfile", "selectorfile", "engine", "streamed"},  # edges
    {"generate", "opened", "rescoring"},  # every call to a model; graded candidates, from a run or a file
    {"tasks", "checkpoint"},  # what is asked, of which data; programs and the cases they are run against
    {"running", "doctor", "calibration", "repeated", "pytest_plugin"},  # a whole run; judges against people; tests
    {
        "evaluation",
        "training",
        "judge",
        "exporters",
        "integrations",
        "sinks",
    },  # training loops; models that grade; other tools
    {"web"},  # the viewer
    {"cli", "__main__"},  # application
]
LAYER = {name: i for i, names in enumerate(LAYERS) for name in names}
FILES = sorted(p for p in SRC.rglob("*.py") if p != SRC / "__init__.py")


def part_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """The parts of kofn a file imports, in functions and under TYPE_CHECKING too."""
    tree = ast.parse(path.read_text())
    names = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module]
    names += [
        f"kofn.{a.name}"
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom) and n.module == "kofn"
        for a in n.names
    ]
    names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    return {name.split(".")[1] for name in names if name.startswith("kofn.")} - {"__version__"}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_file_imports_only_from_its_own_part_or_a_lower_layer(path):
    own = part_of(path)
    in_folder = path.parent != SRC
    for other in imports(path) - {own}:
        allowed = LAYER[other] < LAYER[own] or (LAYER[other] == LAYER[own] and not in_folder)
        assert allowed, f"{own} (layer {LAYER[own]}) imports {other} (layer {LAYER[other]})"


@pytest.mark.parametrize(
    "path", [p for p in FILES if LAYER[part_of(p)] in (2, 3)], ids=lambda p: str(p.relative_to(SRC))
)
def test_the_pure_layers_open_no_file_read_no_clock_and_share_no_random_state(path):
    tree = ast.parse(path.read_text())
    called = {ast.unparse(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    banned = {
        "open",
        "time.time",
        "time.perf_counter",
        "datetime.now",
        "np.random.seed",
        "random.random",
        "print",
    }
    assert not called & banned
