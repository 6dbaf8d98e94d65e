"""A value that must be there has a type that says so: few asserts narrow an optional one."""

from __future__ import annotations

import ast

from tests.repository.source_tree import modules, tree_of

MOST = 25  # the number may fall, and may not grow


def narrows(node: ast.AST) -> bool:
    """Whether a statement asserts that something is not None."""
    return isinstance(node, ast.Assert) and ast.unparse(node.test).endswith(" is not None")


def test_few_asserts_narrow_an_optional_value():
    found = [f"{module}:{node.lineno}" for module in modules() for node in ast.walk(tree_of(module)) if narrows(node)]
    assert len(found) < MOST, found


def test_an_assert_is_counted_by_what_it_narrows():
    counted = [narrows(node) for node in ast.parse("assert a is not None\nassert a.b is not None\nassert a == b").body]
    assert counted == [True, True, False]
