"""Task files: what is refused, and the line that says why."""

from __future__ import annotations

import pytest

from kofn.errors import InputError, UnknownName
from kofn.scoring.configuration import configure
from kofn.tasks import Task, load_task, names

RECORDS = [{"id": "a", "question": "1 + 1?", "answer": "2"}]
PLAIN = {"name": "mine", "dataset": RECORDS}


def written(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def refused(tmp_path, text):
    with pytest.raises(InputError) as caught:
        load_task(written(tmp_path, text))
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(tmp_path / "mine.yaml"))


HEAD = "name: mine\ndataset: [{question: q, answer: 1}]\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "stages:\n  - promt: x\n", ": line 4: stages.0: unknown key 'promt': did you mean prompt?"),
        (HEAD + "repeat: 5\n", ": line 3: unknown key 'repeat': did you mean repeats?"),
        (HEAD + "repeats: '5'\n", ": line 3: repeats: expected a whole number"),
        (HEAD + "stages:\n  - temperature: hot\n", ": line 4: stages.0.temperature: expected a number"),
        (HEAD + "stages:\n  - temperature: .nan\n", ": line 4: stages.0.temperature: expected a finite number"),
        (HEAD + "stages:\n  - prompt: 'a {b'\n", ": line 4: stages.0.prompt: 'a {b': a lone brace"),
        (HEAD + "stages:\n  - {name: a}\n  - {name: b}\n", ": stage 'b' has no prompt"),
        (HEAD + "stages:\n  - {name: a}\n  - {name: a, prompt: x}\n", ": two stages are called 'a'"),
        (HEAD + "stages: [{name: cot}]\n", ": line 3: stages.0.name: cot always stands for the stage before"),
        (HEAD + "stages: [{}]\ntwo_stage: {}\n", ": stages and two_stage both say what is asked"),
        (
            HEAD + "two_stage:\n  answer: {prompt: '{question}'}\n",
            ": line 4: two_stage: answer.prompt names {question}",
        ),
        (HEAD + "shape: gsm9k\n", ": line 3: shape: unknown shape 'gsm9k': did you mean gsm8k?"),
        (HEAD + "fields: {refrence: a}\n", ": line 3: fields: unknown role 'refrence': did you mean reference?"),
        (HEAD + "groups: {types: {a: core}}\n", ": line 3: groups.types: unknown group type 'core'"),
        (HEAD + "groups: {weights: {a: 0}}\n", ": line 3: groups.weights: a: a weight is above 0"),
        (HEAD + "policy: most\n", ": line 3: policy: unknown policy 'most'"),
        (HEAD + "output_type: chat\n", ": line 3: output_type: expected 'generate_until'"),
        (
            HEAD + "metrics: [{metric: numeric, aggregation: median}]\n",
            ": line 3: metrics.0.aggregation: expected ",
        ),
        (HEAD + "metrics: [numerik]\n", ": unknown metric 'numerik': did you mean numeric?"),
        (HEAD + "extract: numbr\n", ": unknown extractor 'numbr': did you mean number"),
        (HEAD + "aggregate: [pas@5]\n", ": unknown aggregator 'pas': "),
        (HEAD + "fewshot: {count: 1, source: 3}\n", ": line 3: fewshot.source: expected a path"),
        (HEAD + "name: twice\n", ": line 3: 'name' is there twice"),
        ("name: mine\ndataset: {config: x}\n", ": line 2: dataset: expected a path, a list of records, or a mapping"),
        ("name: mine\n", ": dataset: missing: expected a value"),
        ("name: [\n", ": line 2: not YAML: "),
        ("- a\n", ": expected a mapping"),
        ("!!python/object/apply:os.system [ls]\n", ": line 1: not YAML: could not determine a constructor"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_line_and_field(tmp_path, text, said):
    assert refused(tmp_path, text).startswith(said)


def test_a_task_is_found_by_name_path_mapping_and_module(tmp_path, monkeypatch):
    assert load_task("gsm8k").name == "gsm8k"
    task = load_task(PLAIN)
    assert load_task(task) is task
    assert load_task(str(written(tmp_path, HEAD))).name == "mine"
    (tmp_path / "my_tasks.py").write_text(f"one = {PLAIN!r}\ndef made():\n    return one\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_task("my_tasks:one").name == load_task("my_tasks:made").name == "mine"
    with pytest.raises(InputError, match="my_tasks:two"):
        load_task("my_tasks:two")


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownName, match="did you mean svamp"):
        load_task("swamp")
    with pytest.raises(InputError, match=r"nowhere.yaml: cannot be read"):
        load_task("nowhere.yaml")


@pytest.mark.parametrize("name", names())
def test_every_built_in_task_names_only_what_exists(name):
    from kofn.tasks.task import check_names

    task = check_names(load_task(name))
    assert isinstance(task, Task)
    assert task.spec.description
    assert task.configure().grading.extract == task.spec.extract
    assert task.configure().report.task == name


def test_the_fingerprint_is_of_what_is_asked_and_graded():
    task = load_task(PLAIN)
    assert task.fingerprint() == load_task({**PLAIN, "description": "other words"}).fingerprint()
    assert task.fingerprint() == load_task({**PLAIN, "repeats": 50}).fingerprint()
    assert task.fingerprint() != task.override(temperature=0.5).fingerprint()
    assert task.fingerprint() != task.two_staged().fingerprint()


def test_settings_are_changed_and_checked_again():
    task = load_task(PLAIN)
    changed = task.override(temperature=0.2, max_tokens=9, stop="\n", chat=False, extract="number", repeats=3)
    stage = changed.spec.all_stages()[0]
    assert (stage.temperature, stage.max_tokens, stage.stop, stage.chat) == (0.2, 9, ("\n",), False)
    assert (changed.spec.extract, changed.spec.repeats) == ("number", 3)
    assert task.override(temperature=None) == task
    with pytest.raises(InputError, match=r"mine: stages.0.temperature: expected a number of at least 0"):
        task.override(temperature=-1.0)
    with pytest.raises(UnknownName, match="did you mean temperature"):
        task.override(temprature=1.0)


def test_of_several_stages_one_must_say_whose_setting_it_is():
    task = load_task({**PLAIN, "stages": [{"name": "think", "temperature": 1.0}, {"name": "say", "prompt": "{cot}"}]})
    with pytest.raises(InputError, match=r"say whose max_tokens it is, such as think\.max_tokens"):
        task.override(max_tokens=5)
    changed = task.override(stages={"say": {"max_tokens": 5}})
    assert [s.max_tokens for s in changed.spec.all_stages()] == [256, 5]
    with pytest.raises(UnknownName, match="stage"):
        task.override(stages={"sya": {"max_tokens": 5}})


def test_grading_reaches_the_evaluation_and_the_report():
    body = {
        **PLAIN,
        "metrics": [{"metric": "numeric", "weight": 2.0, "repeat_aggregation": "any"}, "exact_match"],
        "aggregate": ["mean"],
        "segments": ["level"],
        "groups": {"field": "level", "types": {"easy": "Core"}, "weights": {"easy": 3.0}},
    }
    task = load_task(body)
    config = task.configure(configure(seed=7))
    options, plan = config.grading, config.report
    assert options.metrics == ("numeric", "exact_match")
    assert options.aggregate == ("mean", "any_pass")
    assert (options.by, options.seed) == (("level",), 7)
    assert (plan.group, plan.types, plan.weights) == ("level", {"easy": "Core"}, {"easy": 3.0})
    assert (plan.metric_weights, plan.verdict, plan.case_rule) == ({"numeric": 2.0}, None, "any_pass")


def test_the_repeats_of_one_case_are_combined_by_the_same_names():
    from kofn.metrics.metric_config import process_metrics

    named = [{"metric": "numeric", "repeat_aggregation": n} for n in ("majority", "any", "pass@2", "mean")]
    answers = ["2", "3", "2", "5"]
    found = [
        process_metrics(load_task({**PLAIN, "metrics": [one]}).metric_configs(), answers, "2")["numeric"]
        for one in named
    ]
    assert found == [1.0, 1.0, pytest.approx(1 - 1 / 6), 0.5]


def test_a_prompt_at_the_top_level_makes_a_task_of_one_stage(tmp_path):
    short = load_task(written(tmp_path, HEAD + 'prompt: "{question} ="\ntemperature: 0.3\nstop: ["."]\n'))
    long = load_task({**PLAIN, "stages": [{"prompt": "{question} =", "temperature": 0.3, "stop": ["."]}]})
    assert short.spec.stages == long.spec.stages
    assert [stage.name for stage in short.spec.stages] == ["answer"]
    assert short.override(temperature=0.9).spec.stages[0].temperature == 0.9


def test_mistakes_in_a_stage_at_the_top_level_are_told_where_they_stand(tmp_path):
    assert ": line 4: temperature: expected a number" in refused(tmp_path, HEAD + "prompt: x\ntemperature: -1\n")
    said = refused(tmp_path, HEAD + "prompt: x\nstages: [{prompt: y}]\n")
    assert said.startswith(": line 3: prompt: belongs to a task with one stage, and this one has `stages`")


def test_functions_that_a_task_names_are_not_imported_by_who_looks_at_it(tmp_path):
    (tmp_path / "own.py").write_text("raise SystemExit('imported')\n")
    own = f"{tmp_path / 'own.py'}:f"
    task = load_task({**PLAIN, "extract": own, "metrics": [own], "aggregate": [own]})
    assert task.spec.extract == own
