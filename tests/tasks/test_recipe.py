"""Prompts: what is sent, in messages and as text, in one stage and two, with examples and options."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kofn.errors import InputError
from kofn.models.base import Message
from kofn.tasks import load_task
from kofn.tasks.recipe import option_order

ROWS = [{"id": f"q{i}", "question": f"{i} + 1?", "answer": str(i + 1)} for i in range(8)]
QUIZ = [
    {"id": f"m{i}", "question": f"Q{i}", "choices": ["red", "green", "blue", "none of them"], "answer": "C"}
    for i in range(6)
]


def task_of(rows=ROWS, **more):
    return load_task({"name": "mine", "dataset": rows, **more})


def prompt_of(task, at=0, stage=0, repeat=0, outputs=None, chat=False, **how):
    return task.recipe(**how).prompt(task.items()[at], stage, repeat, outputs or {}, chat=chat)


def test_a_chat_model_gets_messages_and_another_a_text():
    task = task_of(stages=[{"prompt": "Q: {question}", "system": "Be brief, {id}."}])
    assert prompt_of(task, chat=True) == (Message("system", "Be brief, q0."), Message("user", "Q: 0 + 1?"))
    assert prompt_of(task) == "Be brief, q0.\n\nQ: 0 + 1?"


@pytest.mark.parametrize(("own", "kind"), [(True, tuple), (False, str)])
def test_a_stage_may_settle_whether_it_is_a_chat(own, kind):
    task = task_of(stages=[{"prompt": "{question}", "chat": own}])
    assert {type(prompt_of(task, chat=chat)) for chat in (True, False)} == {kind}


def test_examples_are_turns_in_a_chat_and_blocks_in_a_text():
    few = {"count": 2, "source": [{"question": f"E{i}", "answer": i, "why": f"since {i}"} for i in range(3)]}
    task = task_of(fewshot={**few, "answer": "{why}: {reference}"}, stages=[{"prompt": "{question}\nA:"}])
    assert [m.content for m in prompt_of(task, chat=True)] == [
        "E0\nA:", "since 0: 0", "E1\nA:", "since 1: 1", "0 + 1?\nA:",
    ]  # fmt: skip
    assert prompt_of(task) == "E0\nA: since 0: 0\n\nE1\nA: since 1: 1\n\n0 + 1?\nA:"


def test_a_case_is_never_its_own_example():
    task = task_of(fewshot={"count": 3, "source": ROWS, "seed": 5})
    for at, row in enumerate(ROWS):
        examples = [m.content for m in prompt_of(task, at, chat=True)[:-1]]
        assert row["question"] not in examples
        assert len(examples) == 6


def test_examples_are_drawn_by_seed_and_case_and_by_repeat_where_asked():
    def examples(seed, per_repeat, at, repeat):
        task = task_of(fewshot={"count": 3, "source": ROWS, "seed": seed, "per_repeat": per_repeat})
        return prompt_of(task, at, repeat=repeat)

    first = examples(1, False, 0, 0)
    assert first == examples(1, False, 0, 0) == examples(1, False, 0, 3)
    assert first != examples(2, False, 0, 0)
    assert examples(1, True, 0, 0) != examples(1, True, 0, 1)
    assert {prompt_of(task_of(fewshot={"count": 2, "source": ROWS[:3]}), at)[:6] for at in (4, 5)} == {"0 + 1?"}


def test_examples_of_a_group_are_shown_to_that_group_alone():
    rows = [{**row, "group": "ab"[i % 2]} for i, row in enumerate(ROWS)]
    task = task_of(rows, fewshot={"count": 1, "source": [{"question": "E", "answer": 1, "group": "a"}]})
    assert [len(prompt_of(task, at, chat=True)) for at in range(4)] == [3, 1, 3, 1]


def test_more_examples_than_there_are_is_refused():
    with pytest.raises(InputError, match="fewshot: 4 examples asked for, 3 there"):
        task_of(fewshot={"count": 4, "source": ROWS[:3]}).recipe()
    with pytest.raises(InputError, match="no such file"):
        task_of(fewshot={"count": 1, "source": "nowhere.jsonl"}).recipe()
    with pytest.raises(InputError, match="no dev examples beside records of the task file itself"):
        task_of(fewshot={"count": 1}).recipe()


def test_dev_examples_are_found_beside_the_file(tmp_path):
    for split, n in (("test", 1), ("train", 2)):
        (tmp_path / f"x_{split}.jsonl").write_text("\n".join(f'{{"question": "{split}{i}"}}' for i in range(n)))
    task = load_task({"name": "mine", "dataset": str(tmp_path / "x_test.jsonl"), "fewshot": {"count": 2}})
    assert [m.content for m in prompt_of(task, chat=True) if m.role == "user"] == ["train0", "train1", "test0"]


def test_two_stages_are_the_documented_prompts_and_models():
    task = task_of().two_staged(temperature=0.9)
    recipe = task.recipe()
    reasoning, answer = recipe.stages
    assert (reasoning.model, reasoning.sampling.temperature) == ("actor", 0.9)
    assert (answer.model, answer.sampling.temperature) == ("critic", 0.0)
    assert prompt_of(task, chat=True) == "Question: 0 + 1?\nReasoning:"
    assert prompt_of(task, stage=1, outputs={"reasoning": " {x} is 1"}, chat=True) == "Reasoning:  {x} is 1\nAnswer:"


def test_without_the_markov_property_the_answer_sees_the_question():
    task = task_of().two_staged(markovian=False, actor_reward_weight=0.5)
    assert prompt_of(task, stage=1, outputs={"reasoning": "R"}) == "Question: 0 + 1?\nReasoning: R\nAnswer:"
    assert [s.model for s in task.recipe().stages] == ["actor", "actor"]


def test_two_stages_in_a_task_file_are_those_of_python():
    settings = {"markovian": False, "temperature": 0.8, "reasoning": {"max_tokens": 50}, "answer": {"stop": "\n"}}
    of_file, of_python = task_of(two_stage=settings), task_of().two_staged(**settings)
    assert of_file.spec.all_stages() == of_python.spec.all_stages()
    changed = of_file.override(temperature=0.1, stages={"answer": {"max_tokens": 3}})
    assert changed.spec.two_stage is not None
    assert [s.temperature for s in changed.spec.all_stages()] == [0.1, 0.0]
    assert [s.max_tokens for s in changed.spec.all_stages()] == [50, 3]
    assert changed.spec.all_stages()[1].stop == ("\n",)
    assert changed.two_staged(markovian=True).spec.all_stages()[0].max_tokens == 50


def test_examples_beside_two_stages_stand_before_the_reasoning_however_the_stages_are_changed():
    few = {
        "count": 1,
        "source": [{"question": "1 + 2?", "why": "One, and two more.", "answer": "3"}],
        "answer": "{why}",
    }
    task = task_of(fewshot=few, two_stage={"temperature": 0.5})
    for prompt_of in (task, task.two_staged(markovian=False), task.override(temperature=0.2)):
        prompt = prompt_of.recipe().prompt(prompt_of.items()[0], 0, 0, {}, chat=False)
        assert prompt.startswith("Question: 1 + 2?\nReasoning: One, and two more.\n\nQuestion: ")
    once = task_of(fewshot=few, stages=[{"prompt": "{question}"}])
    assert once.two_staged().spec.fewshot is None, "those show answers to a task that asks once"


def test_two_stages_of_multiple_choice_reason_about_the_options():
    task = task_of(QUIZ, extract="letter").two_staged()
    assert prompt_of(task) == "Question: Q0\nA) red\nB) green\nC) blue\nD) none of them\nReasoning:"
    assert prompt_of(task, stage=1, outputs={"reasoning": "R"}) == "Reasoning: R\nAnswer:"


def test_later_stages_name_earlier_ones():
    stages = [{"name": "plan"}, {"name": "draft", "prompt": "{plan}>"}, {"name": "say", "prompt": "{plan}|{cot}|{id}"}]
    assert prompt_of(task_of(stages=stages), stage=2, outputs={"plan": "P{id}", "draft": "D"}) == "P{id}|D|q0"


def test_options_are_scored_after_a_prompt_that_lists_them():
    task = task_of(QUIZ, output_type="multiple_choice", extract="letter")
    assert prompt_of(task, chat=True) == "Question: Q0\nA) red\nB) green\nC) blue\nD) none of them\nAnswer:"
    recipe, item = task.recipe(), task.items()[0]
    assert recipe.stages[0].kind == "choose"
    assert recipe.options(item, 0, 0) == [("A", " red"), ("B", " green"), ("C", " blue"), ("D", " none of them")]
    unlisted = task.override(multiple_choice={"list_options": False})
    assert prompt_of(unlisted) == "Question: Q0\nAnswer:"


@pytest.mark.parametrize("score", ["text", "letter"])
def test_in_every_repeat_an_option_keeps_its_own_label(score):
    task = task_of(QUIZ, output_type="multiple_choice", multiple_choice={"score": score})
    recipe, item = task.recipe(seed=3), task.items()[0]
    texts = dict(choice.split(") ") for choice in item.case.choices)
    orders = set()
    for repeat in range(10):
        prompt, options = recipe.prompt(item, 0, repeat, {}, chat=False), recipe.options(item, 0, repeat)
        examples = dict(line.split(") ") for line in prompt.split("\n")[1:-1])
        assert list(examples) == ["A", "B", "C", "D"]
        for label, continuation in options:
            said = continuation.removeprefix(" ")
            assert texts[label] == (examples[said] if score == "letter" else said)
        orders.add(tuple(label for label, _ in options))
    assert len(orders) == 10


@given(st.integers(1, 9), st.integers(), st.text(max_size=5), st.integers(0, 200))
def test_an_order_of_options_is_a_bijection(n, seed, case_id, repeat):
    order = option_order(n, seed, case_id, repeat)
    assert sorted(order) == list(range(n))
    assert order == option_order(n, seed, case_id, repeat)
    assert repeat or order == tuple(range(n))


def test_multiple_choice_draws_examples_anew_in_every_repeat():
    few = {"count": 2, "source": QUIZ[1:]}
    task = task_of(QUIZ[:1], output_type="multiple_choice", fewshot=few)
    assert prompt_of(task).startswith(
        "Question: Q1\nA) red\nB) green\nC) blue\nD) none of them\nAnswer: blue\n\nQuestion: Q2"
    )
    assert len({prompt_of(task, repeat=r).split("\n\nQuestion: Q0")[0] for r in range(8)}) > 3


def test_a_task_that_asks_for_letters_can_be_scored_by_likelihood():
    task = task_of(QUIZ, extract="letter", stages=[{"prompt": "{question}\n{options}\nSay a letter.", "max_tokens": 9}])
    scored = task.override(output_type="multiple_choice")
    assert prompt_of(scored).endswith("none of them\nAnswer:")
    assert scored.recipe().stages[0].sampling.max_tokens == 9


def test_the_likelihood_of_a_reference_is_asked_for_as_it_stands():
    task = task_of([{"question": "Q", "answer": ["Paris", "paris"]}], output_type="loglikelihood")
    recipe, item = task.recipe(), task.items()[0]
    assert recipe.stages[0].kind == "likelihood"
    assert recipe.options(item, 0, 0) == [("Paris", " Paris"), ("paris", " paris")]
