"""What `kofn verify --lint` says of a problem that loads, and that it says nothing of one that is well."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kofn.problems import load_problem
from kofn.problems.case import AttributeCheck, ProblemCase
from kofn.problems.problem import CaseGroup, Checkpoint, Problem, lint
from kofn.sandbox.workspace import File
from kofn.scoring.configuration import GroupType

CHECK = AttributeCheck(attribute="output", matcher="exact", expected="hello")


def case(name: str = "a", **given: Any) -> ProblemCase:
    return ProblemCase(**{"key": "", "id": name, "checks": (CHECK,), **given})


def group(name: str = "basic", *cases: ProblemCase, **given: Any) -> CaseGroup:
    return CaseGroup(**{"name": name, "type": GroupType.CORE, "cases": cases or (case(),), **given})


def checkpoint(*groups: CaseGroup, **given: Any) -> Checkpoint:
    return Checkpoint(**{"name": "first", "specification": "Say hello.", "groups": groups, **given})


def problem(*checkpoints: Checkpoint, **given: Any) -> Problem:
    return Problem(name="p", folder=Path("p"), entry=("python", "main.py"), checkpoints=checkpoints, **given)


def findings(*groups: CaseGroup, **given: Any) -> list[str]:
    """Of a problem with one checkpoint of these groups."""
    return lint(problem(checkpoint(*groups), **given))


def asset(name: str) -> File:
    return File(name=name, mode=0o100644, data=b"")


def test_nothing_is_said_of_a_problem_that_is_well():
    assert findings(group()) == []


def test_a_checkpoint_without_groups():
    assert findings() == ["first: no cases: no policy can be met; add a group with cases"]


def test_a_checkpoint_whose_groups_have_no_cases():
    found = findings(group(cases=()))
    assert found[0] == "first: no cases: no policy can be met; add a group with cases"
    assert found[1].startswith("first/basic: no cases: write some to basic/cases.yaml")
    assert len(found) == 2


def test_an_empty_group_beside_a_full_one():
    (found,) = findings(group(), group("later", type=GroupType.ERROR, cases=()))
    assert found.startswith("first/later: no cases")


@pytest.mark.parametrize("kind", [kind for kind in GroupType if kind is not GroupType.CORE])
def test_a_checkpoint_without_a_core_group(kind):
    (found,) = findings(group(type=kind))
    assert found.startswith("first: no Core group with cases")


def test_a_core_group_without_cases_is_no_core_group():
    found = findings(group(cases=()), group("more", type=GroupType.FUNCTIONALITY))
    assert any(one.startswith("first: no Core group with cases") for one in found)


def test_a_case_of_which_nothing_is_verified():
    (found,) = findings(group("basic", case("a"), case("b", checks=())))
    assert found == "first/basic/b: nothing is verified: name what it is to show in `expected`"


def test_a_verifier_may_verify_what_the_files_do_not():
    assert findings(group("basic", case(checks=())), code={"verifier.py": "..."}) == []
    assert findings(group("basic", case(checks=())), code={"other.py": "..."}) != []


@pytest.mark.parametrize("text", ["", " \n"])
def test_a_checkpoint_without_a_specification(text):
    (found,) = lint(problem(checkpoint(group(), specification=text)))
    assert found.startswith("first: no specification")


def test_ids_that_differ_only_by_case():
    (found,) = findings(group("basic", case("add"), case("other"), case("ADD")))
    assert found == "first/basic: cases add, ADD differ only in upper and lower case: rename all but one"


def test_the_same_id_in_two_groups_is_fine():
    assert findings(group("one", case("add")), group("two", case("ADD"))) == []


def test_a_timeout_above_a_minute():
    assert findings(group("basic", case(seconds=60.0))) == []
    (found,) = findings(group("basic", case("a"), case("b", seconds=60.5), case("c", seconds=90.0)))
    assert found.startswith("first/basic: cases b, c may take 90 s")


def test_many_slow_cases_are_counted():
    (found,) = findings(group("basic", *(case(str(i), seconds=61.0) for i in range(9))))
    assert found.startswith("first/basic: cases 0, 1, 2 and 6 more may take 61 s")


def test_a_regression_that_brings_nothing():
    (found,) = lint(problem(checkpoint(group(), imports=(2, 0))))
    assert found == "first: regressions[1] brings no group: look at its groups, type_filter and exclude"


def test_an_imported_group_without_cases():
    imported = group("old", type=GroupType.REGRESSION, cases=(), original_checkpoint="zero", original_group="basic")
    (found,) = findings(group(), imported)
    assert found.startswith("first/old: imported without a case")


def test_an_imported_group_is_looked_at_where_it_is_from():
    bad = case("a", checks=(), seconds=99.0, env={"API_KEY": "x"})
    imported = group("old", bad, type=GroupType.REGRESSION, original_checkpoint="zero", original_group="basic")
    assert findings(group(), imported) == []
    assert len(findings(group("old", bad))) == 3


@pytest.mark.parametrize("name", ["API_KEY", "apikey", "GITHUB_TOKEN", "DB_PASSWORD", "SECRET", "AWS_CREDENTIALS"])
def test_names_that_look_like_secrets(name):
    (found,) = findings(group("one", env={name: "x"}), group("two", env={name: "x"}))
    assert found == f"first: env {name} looks like a secret, and every program can read it: take it out"


@pytest.mark.parametrize("name", ["KEYBOARD", "MAX_TOKENS", "LEDGER_CURRENCY", "MONKEY", "SECRETARY"])
def test_names_that_do_not_look_like_secrets(name):
    assert findings(group(env={name: "x"})) == []


def test_a_secret_of_a_case_names_the_case():
    (found,) = findings(group("basic", case("a", env={"TOKEN": "x"})))
    assert found.startswith("first/basic/a: env TOKEN")


def test_an_asset_in_the_place_of_the_program():
    (found,) = findings(group(), assets=(asset("main.py"),))
    assert found == "static asset main.py takes the place of every submission's own main.py: rename it"


@pytest.mark.parametrize("name", ["data/cases.yaml", "first/basic/a/case.yaml", "cases.jsonl"])
def test_an_asset_that_gives_answers_away(name):
    (found,) = findings(group(), assets=(asset(name),))
    assert "gives expected answers to the programs" in found


def test_an_asset_that_no_submission_is_told_of():
    hidden = (asset("data/a.csv"), asset("data/b.csv"))
    (found,) = findings(group(), assets=hidden)
    assert found.startswith("static asset data: no specification names it")
    specified = checkpoint(group(), specification="Read the files in data.")
    assert lint(problem(specified, assets=hidden)) == []


def test_a_file_of_a_case_in_the_place_of_an_asset():
    specified = checkpoint(group("basic", case(files=(asset("rates.csv"),))), specification="Rates are in rates.csv.")
    (found,) = lint(problem(specified, assets=(asset("rates.csv"),)))
    assert found.startswith("first/basic/a: file rates.csv takes the place of the static asset rates.csv")


def test_weights_of_groups_far_apart():
    assert findings(group("one", weight=100.0), group("two")) == []
    (found,) = findings(group("one", weight=101.0), group("two"))
    assert found.startswith("first: group one weighs 101 and group two 1")


def test_weights_of_attributes_far_apart():
    light = replace(CHECK, attribute="stderr", weight=0.001)
    (found,) = findings(group("basic", case(checks=(CHECK, light))))
    assert found.startswith("first/basic/a: output weighs 1 and stderr 0.001")


def test_an_import_that_brings_nothing_is_found_in_files_too(tmp_path):
    (tmp_path / "config.yaml").write_text("""
name: p
entry: python main.py
checkpoints:
  one:
    specification: Say hello.
    groups:
      basic: {type: Core, cases: [{id: a, expected: {output: hello}}]}
  two:
    specification: Say hello again.
    groups:
      basic: {type: Core, cases: [{id: a, expected: {output: hello}}]}
    regressions:
      - {checkpoint: one}
      - {checkpoint: one, type_filter: Error, name_template: "x-{group}"}
      - {checkpoint: one, exclude: basic/a, name_template: "y-{group}"}
""")
    assert lint(load_problem(tmp_path)) == [
        "two: regressions[1] brings no group: look at its groups, type_filter and exclude",
        "two/y-basic: imported without a case: exclude the group, or fewer of its cases",
    ]


@pytest.mark.parametrize("name", ["ledger", "notes"])
def test_findings_are_one_line_each(name):
    folder = Path(__file__).parents[2] / "examples" / "problems" / name
    spoiled = [replace(c, specification="", imports=(0,)) for c in load_problem(folder).checkpoints]
    found = lint(replace(load_problem(folder), checkpoints=tuple(spoiled)))
    assert len(found) >= 4
    assert all(one and "\n" not in one for one in found)
