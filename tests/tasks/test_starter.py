"""The task that ships: its data is sound, and its extractor makes equal answers equal."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from kofn.importers import read
from kofn.importers.base import ReadOptions
from kofn.runs import report_of
from kofn.scoring.configuration import configure
from kofn.scoring.evaluate import evaluate
from kofn.tasks import load_task
from kofn.tasks.starter import answer

TASK = load_task("starter")
ITEMS = TASK.items()
FACTS = [i.case for i in ITEMS if i.fields["group"] == "facts"]
PROBLEMS = [i.case for i in ITEMS if i.fields["group"] == "word_problems"]


def test_both_groups_have_their_type_and_enough_items():
    plan = TASK.configure().report
    assert plan.types == {"facts": "Core", "word_problems": "Functionality"}
    assert min(len(FACTS), len(PROBLEMS)) >= 40
    assert len({i.case.input for i in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("case", FACTS, ids=lambda c: c.id)
def test_a_fact_has_one_right_word_and_its_question_names_none(case):
    (reference,) = case.references
    words = [choice.partition("|")[0] for choice in case.choices]
    assert words.count(reference) == 1
    forms = Counter(form.casefold() for choice in case.choices for form in choice.split("|"))
    assert max(forms.values()) == 1
    assert answer(case.input, case.choices) is None
    for choice in case.choices:
        for form in choice.split("|"):
            assert answer(f"I think it is {form}.", case.choices) == choice.partition("|")[0]


@pytest.mark.parametrize("case", PROBLEMS, ids=lambda c: c.id)
def test_a_word_problem_is_one_step_from_its_numbers(case):
    numbers = [int(n) for n in re.findall(r"\d+", case.input)]
    assert len(numbers) == 2, case.input
    a, b = numbers
    results = {a + b, a - b, a * b, *([a // b] if a % b == 0 else []), *([b // a] if b % a == 0 else [])}
    assert int(case.references[0]) in results


def test_facts_are_asked_alone_and_word_problems_after_three_examples():
    recipe = TASK.recipe()
    lengths = {i.fields["group"]: len(recipe.prompt(i, 0, 0, {}, chat=True)) for i in ITEMS}
    assert lengths == {"facts": 1, "word_problems": 7}
    turns = recipe.prompt(ITEMS[-1], 0, 0, {}, chat=True)
    assert [t.role for t in turns] == ["user", "assistant"] * 3 + ["user"]
    for example in recipe.shots.pool:
        assert answer(example.fields["solution"]) == example.fields["reference"]


@pytest.mark.parametrize(
    ("text", "choices", "found"),
    [
        ("It was Rome, not Paris.", ["Paris", "Rome"], "Rome"),
        ("PARIS!", ["Paris", "Rome"], "Paris"),
        ("Parisian", ["Paris", "Rome"], None),
        ("gold is Au", ["Au", "Ag"], "Au"),
        ("au revoir", ["Au", "Ag"], None),
        ("8 legs", ["eight|8", "six|6"], "eight"),
        ("It boils at 212.100 degrees", ["100", "212"], None),
        ("At 100.", ["100", "212"], "100"),
        ("<think>Rome</think>Paris", ["Paris", "Rome"], "Paris"),
        (None, ["Paris"], None),
        ("7 + 5 = 12. The answer is 12.", None, "12"),
        ("none", [], None),
    ],
)
def test_an_answer_is_the_first_word_named_or_the_number(text, choices, found):
    assert answer(text, choices) == found


def test_the_vote_and_the_groups_come_out_of_an_evaluation_of_this_task(tmp_path):
    path = tmp_path / "out.jsonl"
    path.write_text("\n".join(json.dumps(row_of(item)) for item in ITEMS))
    table = read([path], ReadOptions(keep=("group",)))
    result = evaluate(table, TASK.configure(configure(by=("group",))).grading)
    by_group = {g: result.get("majority", segment=f"group={g}").point for g in SAID}
    assert by_group["facts"] == 1.0
    assert by_group["word_problems"] == 0.0
    report, _ = report_of(result, TASK.configure().report)
    assert {name: group.type for name, group in report.group_outcomes.items()} == TASK.configure().report.types


SAID = {
    "facts": lambda right: [f"It is {right}."] * 2 + ["No idea.", "It is unknown.", "?"],
    "word_problems": lambda right: ["1 + 1 = 999."] * 3 + [f"The answer is {right}."] * 2,
}


def row_of(item):
    case = item.case
    return {
        "id": case.id,
        "reference": case.references[0],
        "choices": list(case.choices) or None,
        "group": item.fields["group"],
        "outputs": SAID[item.fields["group"]](case.references[0]),
    }
