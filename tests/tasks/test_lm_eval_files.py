"""Task files of lm-eval: what they ask is translated or refused, in one line that names the key."""

from __future__ import annotations

import json
import sys

import pytest

import kofn
from kofn.cli import main
from kofn.errors import InputError
from kofn.integrations.lm_eval import score_repeats, task_config
from kofn.tasks import load_task

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: data.jsonl}}
test_split: test
doc_to_text: "Q: {{question}}\\nA:"
doc_to_target: "{{answer}}"
"""
METRICS = "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n"


@pytest.fixture
def written(tmp_path):
    """A task file of these lines beside its data."""
    rows = [{"question": f"{i}+1?", "answer": i + 1, "options": ["one", "two"], "right": i % 2} for i in range(4)]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(*lines, base=TASK, name="task.yaml"):
        (tmp_path / name).write_text(base + "\n".join(lines) + "\n")
        return tmp_path / name

    return write


@pytest.fixture
def said(monkeypatch, capsys):
    """The last line that a command says before it ends with exit code 2."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["kofn", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        return capsys.readouterr().err.strip().splitlines()[-1]

    return run


def prompts(path, **more):
    """What is asked of each case."""
    sent = []

    def model(prompt):
        sent.append(prompt)
        return "2"

    run = kofn.run(path, model=model, **more)
    return sent, run


# --- what is asked


def test_templates_are_rendered_as_lm_eval_does(written):
    sent, run = prompts(written(METRICS, 'description: "Add {them}.\\n"'))
    assert sent == [f"Add {{them}}.\nQ: {i}+1?\nA:" for i in range(4)]
    assert run.result.get("mean").point == 0.25
    assert [item.case.references for item in load_task(written(METRICS)).items()] == [("1",), ("2",), ("3",), ("4",)]


@pytest.mark.parametrize(
    ("text", "target", "prompt", "reference"),
    [
        ("question", "answer", "0+1?", "1"),
        ('\'{{question | regex_replace("[+]", " plus ")}}\'', "'{{answer}}'", "0 plus 1?", "1"),
        ("'{% if answer > 0 %}yes{% endif %}'", "'{{answer + 1}}'", "yes", "2"),
    ],
)
def test_a_template_is_a_field_or_jinja(text, target, prompt, reference, written):
    base = TASK.replace('"Q: {{question}}\\nA:"', text).replace('"{{answer}}"', target)
    sent, run = prompts(written(METRICS, base=base), limit=1)
    assert sent == [prompt]
    assert run.result.table.cases["reference"][0] == reference


def test_targets_of_options_are_places(written):
    base = TASK.replace('"{{answer}}"', "right")
    path = written("output_type: multiple_choice", "doc_to_choice: options", base=base)
    items = load_task(path).items()
    assert [item.case.references for item in items] == [("A",), ("B",)] * 2
    assert [one.removeprefix("A) ").removeprefix("B) ") for one in items[0].case.choices] == ["one", "two"]


def test_examples_before_the_question_are_those_of_the_file(written):
    samples = "{sampler: first_n, samples: [{question: 5+5?, answer: 10}, {question: 6+6?, answer: 12}]}"
    sent, _ = prompts(written(METRICS, "num_fewshot: 2", f"fewshot_config: {samples}"), limit=1)
    assert sent == ["Q: 5+5?\nA: 10\n\nQ: 6+6?\nA: 12\n\nQ: 0+1?\nA:"]


def test_settings_of_generation_are_taken_over(written):
    spec = load_task(written(METRICS, 'generation_kwargs: {until: ["\\n"], max_gen_toks: 7, temperature: 0.5}')).spec
    assert (spec.stages[0].stop, spec.stages[0].max_tokens, spec.stages[0].temperature) == (("\n",), 7, 0.5)
    greedy = load_task(written(METRICS, "generation_kwargs: {do_sample: false, temperature: 0.5}")).spec
    assert greedy.stages[0].temperature == 0.0
    assert load_task(written(METRICS)).spec.stages[0].stop == ("\n\n",), "lm-eval's own"


def test_a_file_takes_over_what_it_includes_and_may_say_otherwise(written):
    written(METRICS, "repeats: 2", name="base.yaml")
    path = written("include: base.yaml", "task: other", "repeats: 3", base="")
    spec = load_task(path).spec
    assert (spec.name, spec.repeats) == ("other", 3)
    sent, _ = prompts(path)
    assert len(sent) == 12


def test_names_that_runs_cannot_have_are_written_otherwise(written):
    assert load_task(written(METRICS, base=TASK.replace("task: sums", "task: sums (easy)"))).spec.name == "sums_easy_"


# --- repeats


def test_the_first_is_taken_where_the_file_says_nothing_and_names_of_others_are_known(written):
    lines = "\n".join(
        f"  - {{metric: exact_match, name: n{i}, repeat_aggregation: {rule}}}"
        for i, rule in enumerate(["any", "all", "best", "maj", "vote", "'pass@2'", "majority(ties='shared')"])
    )
    config = task_config(written("metric_list:\n  - {metric: exact_match}", lines))
    assert [e.repeat_aggregation for e in config.entries] == [
        *("first", "any_pass", "all_pass", "best_score", "majority", "majority", "pass@2", "majority(ties='shared')")
    ]
    assert config.task["metric_list"] == [{"metric": "exact_match"}], "lm-eval is given the metric once"


def test_settings_of_a_metric_grade_as_they_say(written, tmp_path):
    lines = (
        "repeats: 2",
        "metric_list:",
        "  - {metric: exact_match, name: strict, repeat_aggregation: mean}",
        "  - {metric: exact_match, name: loose, repeat_aggregation: mean, ignore_case: true, regexes_to_ignore: [',']}",
    )
    log = tmp_path / "samples_sums.jsonl"
    row = {"doc_id": 0, "doc": {}, "target": "1000 a", "arguments": [["Q", {}]], "filter": "none", "metrics": []}
    log.write_text(json.dumps(row | {"resps": [["1,000 A", "1000 a"]], "filtered_resps": ["1,000 A"]}) + "\n")
    assert score_repeats(log, written(*lines)).values == {"strict": 0.5, "loose": 1.0}


def test_an_extractor_of_the_callers_counts_more_than_the_grades_of_the_log(written, tmp_path):
    log = tmp_path / "samples_sums.jsonl"
    row = {
        "doc_id": 0,
        "doc": {},
        "target": "4",
        "arguments": [["Q", {}]],
        "filter": "none",
        "metrics": ["exact_match"],
    }
    log.write_text(
        json.dumps(row | {"resps": [["It is 4."]], "filtered_resps": ["It is 4."], "exact_match": 0.0}) + "\n"
    )
    path = written(METRICS)
    assert score_repeats(log, path).values == {"exact_match": 0.0}
    assert score_repeats(log, path, extract="number").values == {"exact_match": 1.0}


@pytest.mark.parametrize(
    ("metrics", "what"),
    [
        (
            "[{metric: exact_match, repeat_aggregation: majoritty}]",
            "metric_list.0: repeat_aggregation: unknown aggregator 'majoritty': did you mean majority",
        ),
        (
            "[{metric: exact_match, repeat_aggregation: pass_at}]",
            "metric_list.0: repeat_aggregation: aggregator pass_at",
        ),
        ("[{metric: exact_match, repeat_aggregation: [mean]}]", "metric_list.0: repeat_aggregation: expected a name"),
        (
            "[{metric: exact_match}, {metric: exact_match, repeat_aggregation: mean}]",
            "metric_list.1: two metrics are named 'exact_match': add `name:` to one",
        ),
        (
            "[{metric: exact_match, name: a}, {metric: acc, name: a}]",
            "metric_list.1: two metrics are named 'a': add `name:` to one",
        ),
        ("[exact_match]", "metric_list.0: expected a mapping with `metric`"),
        ("{metric: exact_match}", "metric_list: expected a list"),
        (
            "[{metric: exact_match, repeats_aggregation: mean}]",
            "metric_list.0: unknown key 'repeats_aggregation': did you mean repeat_aggregation",
        ),
        ("[{metric: exact_match, weight: much}]", "metric_list.0: weight: expected a number, found 'much'"),
    ],
)
@pytest.mark.parametrize("way", ["run", "score", "python"])
def test_a_mistake_in_the_metrics_is_one_line(way, metrics, what, written, said, tmp_path):
    path = written(f"metric_list: {metrics}")
    if way == "python":
        with pytest.raises(InputError) as problem:
            task_config(path)
        message = str(problem.value)
    else:
        message = said("run", path) if way == "run" else said("score", tmp_path / "data.jsonl", "--task", path)
    assert message.removeprefix("kofn: ").startswith(f"{path}: {what}")


# --- what cannot be asked


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (
            "process_docs: !function utils.docs",
            "process_docs: not translated: run this task with lm-eval, and give its",
        ),
        ("process_results: !function utils.grade", "process_results: not translated"),
        ("doc_to_text: !function utils.text", "doc_to_text: !function is code of the task: write a Jinja template, or"),
        (
            "output_type: loglikelihood_rolling",
            "output_type: loglikelihood_rolling is not translated: expected generate",
        ),
        ("output_type: multiple_choice", "doc_to_choice: missing: multiple_choice needs its options"),
        ("doc_to_text: null", "doc_to_text: missing: expected a field or a Jinja template"),
        (
            "test_split: train",
            "dataset_path: dataset_kwargs.data_files has no file for the split train: expected one path",
        ),
        ("generation_kwargs: {num_beams: 4}", "generation_kwargs.num_beams: not translated: expected do_sample,"),
        ("num_fewshot: 2", "fewshot_split: no examples: expected a split of data_files, or samples in fewshot_config"),
        ("metric_list: [{metric: bleu}]", "metric_list: no metric of single answers that is known here"),
        ("metrics_list: []", "unknown key 'metrics_list': did you mean metric_list"),
        ("doc_to_txt: x", "unknown key 'doc_to_txt': did you mean doc_to_text"),
        ("include: nowhere.yaml", "include: {folder}/nowhere.yaml: no such file"),
        ("include: task.yaml", "include: the file includes itself"),
    ],
)
def test_what_cannot_be_asked_is_one_line_that_names_the_key(lines, what, written, said, tmp_path):
    key = lines.partition(":")[0]
    base = "".join(f"{line}\n" for line in TASK.splitlines() if not line.startswith(f"{key}:"))
    path = written(lines, *([] if key == "metric_list" else [METRICS]), base=base)
    assert said("run", path, "--dry-run") == said("run", path)
    message = said("run", path)
    assert message.startswith(f"kofn: {path}: {what.format(folder=tmp_path)}"), message


def test_what_only_matters_for_asking_does_not_keep_from_scoring(written, tmp_path):
    """A log that lm-eval made is scored by a file whose questions are made by code."""
    path = written(
        "process_docs: !function utils.docs", METRICS.replace("mean,", "mean, repeat_aggregation: majority,")
    )
    log = tmp_path / "outputs.jsonl"
    log.write_text('{"id": "a", "reference": "4", "outputs": ["4", "5", "4"]}\n')
    task = load_task(path)
    assert task.spec.aggregate == ("first", "mean", "majority")
    assert task.refused is not None
    assert (
        kofn.score(log, aggregate="majority", metric="exact_match", extract=task.spec.extract).get("majority").point
        == 1
    )


def test_what_is_left_out_of_a_file_is_told(written):
    filters = "filter_list: [{name: f, filter: [{function: custom}]}, {name: g, filter: [{function: take_first}]}]"
    task = load_task(
        written(filters, "metric_list: [{metric: exact_match}, {metric: bleu}, {metric: !function u.own}]")
    )
    assert tuple(map(str, task.notes)) == (
        "2 filters: the first, f, is taken",
        "filter f uses custom, which is not known here: give --extract",
        "metric_list: bleu, u.own: not a metric of single answers here, or not with these settings: left out",
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("group: mmlu\ntask: [mmlu_a, mmlu_b]\n", "group: a group of tasks: give the file of one task"),
        (
            "task: squad\nclass: !function task.Squad\n",
            "class: a task written in Python: run it with lm-eval, and give",
        ),
    ],
)
def test_files_that_are_no_single_task_say_so(text, what, written, said):
    path = written(base=text)
    assert said("run", path).startswith(f"kofn: {path}: {what}")


# --- records and templates that do not fit


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ('doc_to_text: "{{quesion}}"', "data.jsonl: line 1: doc_to_text: 'quesion' is undefined"),
        ('doc_to_text: "{{question"', "data.jsonl: line 1: doc_to_text: unexpected end of template"),
        (
            "output_type: multiple_choice\ndoc_to_choice: [a, b]",
            "data.jsonl: line 2: doc_to_target: 2 is no place among 2 options",
        ),
        (
            "output_type: multiple_choice\ndoc_to_choice: question",
            "doc_to_choice: expected a list of options, found '0+1?'",
        ),
    ],
)
def test_a_record_that_a_template_does_not_fit_is_named(lines, what, written, said):
    key = lines.partition(":")[0]
    base = "".join(f"{line}\n" for line in TASK.splitlines() if not line.startswith(f"{key}:"))
    message = said("run", written(lines, base=base), "--dry-run")
    assert what in message


def test_a_template_cannot_reach_outside(written, said):
    base = TASK.replace("{{question}}", "{{ ''.__class__.__mro__ }}")
    message = said("run", written(METRICS, base=base), "--dry-run")
    assert "doc_to_text: access to attribute '__class__' of 'str' object is unsafe" in message


# --- functions beside a file


def test_a_function_is_found_beside_the_file_that_names_it(written, tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "utils.py").write_text("def text(doc):\n    return doc['question']\n")
    (tmp_path / "shared" / "base.yaml").write_text(TASK + METRICS + "process_docs: !function utils.text\n")
    config = task_config(written("include: shared/base.yaml", base=""))
    assert config.task["process_docs"]({"question": "1+1?"}) == "1+1?"


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (None, "no such file"),
        ("def other(): ...", "it has no text"),
        ("import not_there", "No module named 'not_there'"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def text(:", "SyntaxError: invalid syntax"),
    ],
)
def test_a_function_that_cannot_be_had_is_one_line(code, what, written, tmp_path):
    if code is not None:
        (tmp_path / "utils.py").write_text(code)
    with pytest.raises(InputError) as problem:
        task_config(written(METRICS, "process_docs: !function utils.text"))
    message = str(problem.value)
    assert message.startswith(f"!function utils.text: {tmp_path / 'utils.py'}: {what}")
    assert "\n" not in message


# --- results that do not fit


def test_results_that_hold_no_samples_of_the_task_are_refused(written):
    path = written(METRICS)
    with pytest.raises(InputError, match=r"these results hold no samples: call simple_evaluate with log_samples=True"):
        score_repeats({"results": {}}, path)
    with pytest.raises(InputError, match="these results hold no samples"):
        score_repeats(None, path)
    with pytest.raises(InputError, match=r"unknown task 'sums': did you mean sum"):
        score_repeats({"samples": {"sum": []}}, path)


def test_a_metric_that_nobody_knows_is_one_line(written, tmp_path):
    log = tmp_path / "samples_sums.jsonl"
    row = {"doc_id": 0, "doc": {}, "target": "4", "arguments": [["Q", {}]], "filter": "none", "metrics": []}
    log.write_text(json.dumps(row | {"resps": [["4", "5"]], "filtered_resps": ["4"]}) + "\n")
    with pytest.raises(
        InputError, match=r"^metric fluency is not known here, and lm-eval, which may know it, is not inst"
    ):
        score_repeats(log, written("metric_list: [{metric: fluency, repeat_aggregation: mean}]"))
    with pytest.raises(InputError, match=r"^metric bleu has no value of a single response, and this log none of each"):
        score_repeats(log, written("metric_list: [{metric: bleu, repeat_aggregation: mean}]"))
