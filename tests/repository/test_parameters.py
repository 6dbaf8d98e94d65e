"""A function takes at most eight parameters; what configures a run is one object (`kofn.scoring.configuration`)."""

from __future__ import annotations

import ast

import pytest
from tests.repository.source_tree import modules, package_of, tree_of

MOST = 8
# documented functions that people call with keywords: the signature is their documentation
DOCUMENTED = {
    "kofn.core.candidate_sets:from_lists",  # one parameter per column of a set
    "kofn.integrations.evaluation.evaluate_model:evaluate_model_on",  # positions that training loops pass
    "kofn.integrations.trainer:__init__",  # of KofnCallback
    "kofn.problems.verification:run_checkpoint",
    "kofn.scoring.groupwise:aggregate",  # one parameter per column of a set
    "kofn.stats.corrected_curve:any_of_candidates",
    "kofn.stats.corrected_curve:corrected_curve",
    "kofn.stats.corrected_rates:corrected_rate",
    "kofn.stats.estimates:estimate",
    "kofn.stats.paired:compare",
}
MODULES = [name for name in modules() if name != "kofn" and package_of(name) != "cli"]  # a command has one per option


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The names of a function's parameters; `self`, `*args` and `**options` are not counted."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def long_lists(module: str) -> dict[str, int]:
    """The functions of a module with more parameters than a reader can hold."""
    functions = [n for n in ast.walk(tree_of(module)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    counted = {f"{module}:{one.name}": len(parameters(one)) for one in functions}
    return {name: n for name, n in counted.items() if n > MOST}


@pytest.mark.parametrize("module", MODULES)
def test_a_function_takes_at_most_eight_parameters(module):
    assert long_lists(module).keys() <= DOCUMENTED


def test_the_exceptions_are_there_and_still_long():
    assert {name for module in MODULES for name in long_lists(module)} == DOCUMENTED


def test_parameters_are_counted_without_self_and_collected_ones():
    functions = ast.parse("class A:\n def f(self, a, /, b, *rest, c=1, **more): ...\nasync def g(x, *, y): ...")
    found = [n for n in ast.walk(functions) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert sorted(parameters(one) for one in found) == [["a", "b", "c"], ["x", "y"]]
