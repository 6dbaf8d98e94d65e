"""Data flows one way: a package imports only from lower layers, modules form no cycle, and nothing hides an import."""

from __future__ import annotations

import ast
import importlib
import re

import pytest
from tests.repository.source_tree import LAYER, SRC, cycles, imports_of, module_name, modules, package_of, tree_of

PURE = {"core", "extract", "metrics", "aggregators", "stats", "registry"}
MODULES = [name for name in modules() if name not in ("kofn", "kofn._deprecated")]  # these two stand outside the layers
MOST_IN_FUNCTIONS = 150


def test_every_package_has_its_layer():
    there = {p.stem for p in SRC.glob("*.py")} | {p.name for p in SRC.iterdir() if (p / "__init__.py").exists()}
    assert there - {"__init__", "_deprecated"} == set(LAYER)


@pytest.mark.parametrize("module", MODULES)
def test_a_package_imports_only_from_lower_layers(module):
    own = package_of(module)
    for one in imports_of(module):
        assert one.target != "kofn", f"{module}:{one.line}: import from the module itself, not from the front of kofn"
        other = package_of(one.target)
        assert other == own or LAYER[other] < LAYER[own], f"{module}:{one.line} imports {one.target}, a higher layer"


def test_modules_form_no_cycle():
    """Imports inside functions and for type checkers count."""
    assert cycles() == []


def test_imports_inside_functions_are_few():
    """They are for heavy third-party packages, and for what would load one on the way of a command without it."""
    inside = {(m, i.line) for m in MODULES for i in imports_of(m) if i.in_function}
    assert len(inside) < MOST_IN_FUNCTIONS, len(inside)


def test_names_of_things_to_load_later_lead_somewhere():
    """Tables such as those of `kofn.registry` name "module:attribute"; a typing mistake there would wait for a user."""
    for module in MODULES:
        if module == "kofn._deprecated":
            continue  # tests/repository/test_deprecated.py
        for name, attribute in re.findall(r'"(kofn(?:\.\w+)+):(\w+)"', modules()[module].read_text()):
            assert hasattr(importlib.import_module(name), attribute), f"{module} names {name}:{attribute}"


def test_the_front_exports_lazily_what_type_checkers_see():
    """Each name is listed twice, for type checkers and for `__getattr__`: the lists agree."""
    package = importlib.import_module("kofn")
    for_checkers = {
        alias.asname or alias.name
        for node in tree_of("kofn").body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("kofn")
        for alias in statement.names
    }
    assert for_checkers <= set(package.__all__)
    assert set(package.__all__) - for_checkers <= set(vars(package))
    for name in for_checkers:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("stub", sorted(SRC.rglob("__init__.pyi")), ids=lambda path: path.parent.name)
def test_a_package_exports_lazily_what_type_checkers_see(stub):
    """`lazy_exports` reads the stub line by line: it holds nothing else, and every name is there."""
    package = importlib.import_module(module_name(stub))
    statements = ast.parse(stub.read_text()).body
    names = [alias.name for one in statements if isinstance(one, ast.ImportFrom) for alias in one.names]
    assert len(names) == len(statements)
    assert sorted(names) == package.__all__
    for name in names:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("module", [m for m in MODULES if package_of(m) in PURE])
def test_the_pure_layers_open_no_file_read_no_clock_and_share_no_random_state(module):
    called = {ast.unparse(n.func) for n in ast.walk(tree_of(module)) if isinstance(n, ast.Call)}
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
