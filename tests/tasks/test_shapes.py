"""The published shapes: every item of the real files loads, and every gold can be graded."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.shared import DATA, shared_path

from kofn.core.numbers import canonical_number
from kofn.errors import InputError
from kofn.extract import letter
from kofn.tasks import load_task
from kofn.tasks.shapes import SHAPES

TASKS = DATA / "tasks"

COUNTS = {
    "gsm8k": 1319,
    "svamp": 1000,
    "math": 500,
    "aqua": 254,
    "arc": 1172,
    "mathqa": 1000,
    "humaneval": 164,
    "mmlu": 542,
}


def real(name, **how):
    return load_task(name).items(shared_path(TASKS), **how)


def shaped(name, *records, **more):
    task = load_task({"name": "mine", "dataset": list(records), "shape": name, **more})
    return [item.case for item in task.items()]


@pytest.mark.parametrize("name", COUNTS)
def test_every_item_of_the_real_file_loads(name):
    items = real(name)
    assert len(items) == COUNTS[name]
    assert len({i.case.id for i in items}) == COUNTS[name]
    assert all(i.case.input and i.case.input.strip() for i in items)


@pytest.mark.parametrize("name", ["gsm8k", "svamp"])
def test_every_gold_number_is_canonical(name):
    assert all(canonical_number(i.case.references[0]) == i.case.references[0] for i in real(name))


@pytest.mark.parametrize("name", ["mmlu", "arc", "aqua", "mathqa"])
def test_every_gold_option_is_among_the_labels_and_can_be_extracted(name):
    for item in real(name):
        case = item.case
        labels = [choice[0] for choice in case.choices]
        assert case.references[0] in labels
        assert letter(f"Answer: {case.references[0]}", case.choices) == case.references[0]


def test_gsm8k_gold_numbers_lose_their_commas():
    golds = [i.case.references[0] for i in real("gsm8k")]
    assert golds[:4] == ["18", "3", "70000", "540"]
    assert "1450000" in golds


def test_a_math_gold_is_the_last_box_and_may_nest_braces():
    case = shaped("math", {"problem": "?", "solution": r"$\boxed{1}$, no, $\boxed{\frac{\sqrt{2}}{3}}$"})[0]
    assert case.references == (r"\frac{\sqrt{2}}{3}",)


def test_the_boxed_answer_of_every_math_solution_is_the_answer_field():
    for item in real("math"):
        assert SHAPES["math"].example({**item.fields, "answer": ""}).references == item.case.references


def test_mathqa_options_keep_their_commas_whichever_way_they_are_written():
    items = real("mathqa")
    assert all([c[:2] for c in i.case.choices] == ["A)", "B)", "C)", "D)", "E)"] for i in items)
    texts = {choice for i in items for choice in i.case.choices}
    assert {"B) 1,600", "C) 19 , 956.732", "A) $ 5,330"} <= texts
    assert not [text for text in texts if text[3:5].lower() == f"{text[0].lower()} " and text[5:6] == ")"]


def test_arc_keeps_questions_with_three_and_five_options():
    items = real("arc")
    assert Counter(len(i.case.choices) for i in items) == {4: 1165, 3: 4, 5: 3}
    assert not any("Answer1" in c or "Answer format" in c for i in items for c in (*i.case.choices, i.case.input))


def test_arc_in_its_own_shapes_keeps_labels_that_are_digits():
    lists = {"label": ["1", "2", "3"], "text": ["x", "y", "z"]}
    objects = [{"label": "A", "text": "x"}, {"label": "B", "text": "y"}]
    hub, published = shaped(
        "arc",
        {"id": "h", "question": "?", "choices": lists, "answerKey": "2"},
        {"id": "p", "question": {"stem": "?", "choices": objects}, "answerKey": "B"},
    )
    assert (hub.choices, hub.references) == (("1) x", "2) y", "3) z"), ("2",))
    assert (published.choices, published.references) == (("A) x", "B) y"), ("B",))


def test_svamp_joins_body_and_question_and_a_body_that_breaks_off():
    items = real("svamp")
    assert items[0].case.input.endswith("25 dollars on each pack, How much do you have to pay to buy each pack?")
    assert "salty cookies. How many" in items[2].case.input
    assert items[0].case.references == ("51",)
    assert items[0].case.tags == {"type": "Subtraction"}


def test_mmlu_subjects_are_groups_with_examples_of_their_own():
    task = load_task("mmlu").override(fewshot={"count": 5})
    items = real("mmlu")
    assert list(dict.fromkeys(i.fields["subject"] for i in items)) == [
        "abstract_algebra", "college_biology", "high_school_geography", "us_foreign_policy",
    ]  # fmt: skip
    assert items[0].case.id == "abstract_algebra/0"
    recipe = task.recipe(TASKS)
    dev = {e.fields["question"]: e.fields["subject"] for e in recipe.shots.pool}
    for item in (items[0], items[-1]):
        examples = recipe.shots.of(item, 0)
        assert [dev[e.fields["question"]] for e in examples] == [item.fields["subject"]] * 5


@pytest.mark.parametrize("header", ["question,choice0,choice1,choice2,choice3,answer\n", ""])
def test_mmlu_files_may_name_their_columns_or_not(tmp_path, header):
    gold = "2" if header else "C"
    (tmp_path / "law_test.csv").write_text(f'{header}"one, two\nlines ""quoted""",a,b,"c, d",e,{gold}\n')
    item = load_task("mmlu").items(tmp_path)[0]
    assert item.case.input == 'one, two\nlines "quoted"'
    assert item.case.choices == ("A) a", "B) b", "C) c, d", "D) e")
    assert (item.case.references, item.case.tags) == (("C",), {"subject": "law"})


def test_an_mmlu_row_of_another_length_is_named(tmp_path):
    (tmp_path / "law_test.csv").write_text('"a\nb",1,2,3,4,A\nc,1,2,3,A\n')
    with pytest.raises(InputError, match=r"law_test.csv: line 3: 5 fields"):
        load_task("mmlu").items(tmp_path)


def test_the_reference_of_humaneval_is_what_running_the_tests_needs():
    items = real("humaneval")
    assert items[0].case.id == "HumanEval/0"
    tests = json.loads(items[0].case.references[0])
    assert tests["entry_point"] == "has_close_elements"
    assert "def check(candidate)" in tests["test"]
    assert tests["prompt"] == items[0].case.input


@pytest.mark.parametrize(
    ("name", "record", "said"),
    [
        ("gsm8k", {"question": "?", "answer": "18"}, "no ####"),
        ("gsm8k", {"question": "?", "answer": "#### none"}, "'none' is no number"),
        ("gsm8k", {"answer": "#### 1"}, "no field 'question'"),
        ("svamp", {"Body": "b.", "Question": "?"}, "no field 'Answer' or 'answer'"),
        ("math", {"problem": "?", "solution": "42"}, r"no \\boxed{}"),
        ("mmlu", {"question": "?", "choices": ["a", "b"], "answer": "C", "subject": "s"}, "'C', which is none of A, B"),
        ("aqua", {"question": "?", "options": ["5", "B)6"], "correct": "B"}, "'5' has no label"),
        ("aqua", {"question": "?", "options": ["A)5", "A)6"], "correct": "A"}, "labels of their own, found A, A"),
        ("aqua", {"question": "?", "options": 5, "correct": "A"}, "not a record of shape aqua"),
        ("mathqa", {"problem": "?", "options": "['a ) 1'", "correct": "a"}, "neither a list nor"),
        ("mathqa", {"problem": "?", "options": "12", "correct": "a"}, "found none"),
        ("arc", {"question": "?", "answerKey": "A"}, "a question with its choices"),
        ("arc", {"instruction": "q Answer1: a Answer2: b", "answer": "answer3"}, "none of answer1 to answer2"),
        ("humaneval", {"task_id": "x", "prompt": "p"}, "no field 'entry_point'"),
    ],
)
def test_a_record_of_another_shape_is_refused_with_its_place(name, record, said):
    with pytest.raises(InputError, match=said) as caught:
        shaped(name, record)
    assert str(caught.value).startswith("mine: dataset.0: ")


def test_a_shape_may_be_read_with_fields_of_ones_own():
    record = {"question": "?", "answer": "#### 1", "which": "a-7", "part": "x"}
    case = shaped("gsm8k", record, fields={"id": "which", "group": "part"})[0]
    assert (case.id, case.tags, case.references) == ("a-7", {"group": "x"}, ("1",))
