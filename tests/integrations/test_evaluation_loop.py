"""Evaluating from a training loop: functions on live models, the command on saved adapters, the Trainer's callback."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest
from tests.tiny import make_model, make_tokenizer, save_run, torch, with_adapter

import kofn.integrations.trainer
from kofn.errors import InputError, MissingExtra
from kofn.integrations.evaluation import Evaluated, evaluate_model_on, evaluate_model_on_gsm8k, evaluate_model_on_mmlu
from kofn.integrations.evaluation.command_line import main
from kofn.models.base import Request, Sampling
from kofn.models.factory import Fake
from kofn.models.hugging_face import Transformers

SUMS = [("What is two plus two?", "4"), ("What is 3 + 4?", "7"), ("What is 1 + 1?", 2)]
LETTERS = [
    {"question": "A colour of the sky?", "choices": ["dog", "blue", "fox", "four"], "answer": "B"},
    {"question": "What jumps?", "choices": ["dog", "blue", "fox", "four"], "answer": "C"},
]
SHORT = {"temperature": 0.9, "cot_length": 10, "answer_length": 6, "lr": 1e-4, "question_length": 3}


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def trained(tokenizer):
    return with_adapter(make_model(tokenizer)).train()


@pytest.fixture(scope="module")
def frozen(tokenizer):
    return make_model(tokenizer)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp("run"))


def says(model, tokenizer, prompt, limit=6):
    """What a model answers to a text at temperature 0."""

    async def ask():
        argv = Request(prompt=prompt, sampling=Sampling(temperature=0, max_tokens=limit))
        return [reply.text async for reply in Transformers.of(model, tokenizer).generate([argv])]

    return asyncio.run(ask())[0]


@pytest.mark.parametrize("markovian", [True, False])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_actor_reasons_and_the_one_the_weight_names_answers(trained, frozen, tokenizer, markovian, weight):
    settings = {**SHORT, "markovian": markovian, "actor_reward_weight": weight}
    found = evaluate_model_on("gsm8k", trained, None, tokenizer, "cpu", SUMS[:2], settings, 4, "anchor", False)
    answering, other = (trained, frozen) if weight else (frozen, trained)
    differ = 0
    for (question, _), result in zip(SUMS, found.results, strict=False):
        before = "" if markovian else f"Question: {question}\n"
        prompt = f"{before}Reasoning: {result['reasoning']}\nAnswer:"
        assert result["question"] == question
        assert result["generated_answer"] == says(answering, tokenizer, prompt)
        differ += result["generated_answer"] != says(other, tokenizer, prompt)
    assert differ
    assert len({r["reasoning"] for r in found.results}) == 2


def test_a_critic_of_its_own_answers_as_the_frozen_base_does(trained, frozen, tokenizer):
    base = evaluate_model_on("gsm8k", trained, None, tokenizer, "cpu", SUMS, SHORT)
    given = evaluate_model_on("gsm8k", trained, frozen, tokenizer, "cpu", SUMS, SHORT)
    same = evaluate_model_on("gsm8k", trained, trained, tokenizer, "cpu", SUMS, SHORT)
    assert base.results == given.results == same.results


def test_it_gives_accuracy_results_and_no_haiku_metrics(trained, tokenizer):
    accuracy, results, haiku = evaluate_model_on_gsm8k(trained, None, tokenizer, "cpu", SUMS, {**SHORT, "repeats": 3})
    assert 0 <= accuracy <= 1
    assert [r["answer"] for r in results] == ["4", "7", "2"]
    assert all(len(r["repeats"]) == 3 for r in results)
    assert accuracy == sum(r["correct"] for r in results) / 3
    assert haiku is None


def test_answers_may_be_whole_solutions_as_the_task_has_them(trained, tokenizer):
    solved = [("What is 3 + 4?", "so it is 7\n#### 7"), {"question": "1 + 1?", "answer": "#### 1,002"}]
    found = evaluate_model_on_gsm8k(trained, None, tokenizer, "cpu", solved, SHORT)
    assert [r["answer"] for r in found.results] == ["7", "1002"]


def test_letters_have_an_accuracy_by_the_older_rule_too(trained, tokenizer):
    found = evaluate_model_on_mmlu(trained, None, tokenizer, "cpu", LETTERS, SHORT)
    assert isinstance(found, Evaluated)
    assert found.accuracy_legacy is not None
    assert [r["answer"] for r in found.results] == ["B", "C"]
    assert len(found) == 3


def test_a_model_may_read_the_answers_too(trained, tokenizer):
    reader = Fake.of(lambda prompt: "4" if prompt else "")
    found = evaluate_model_on_gsm8k(
        trained, None, tokenizer, "cpu", SUMS, SHORT, enable_haiku_metric=True, llm_extract=reader
    )
    assert found.haiku_metrics["haiku_accuracy"] == pytest.approx(1 / 3)
    assert found.haiku_metrics["haiku_num_calls"] == 3


def test_without_a_key_no_model_reads_and_the_rest_is_there(trained, tokenizer, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = evaluate_model_on_gsm8k(trained, None, tokenizer, "cpu", SUMS, SHORT, answer_extraction_method="haiku")
    assert found.haiku_metrics is None
    assert len(found.results) == 3


def test_the_same_evaluation_twice_is_the_same_and_the_model_trains_on(trained, tokenizer):
    state = torch.random.get_rng_state()
    first, second = (evaluate_model_on("gsm8k", trained, None, tokenizer, None, SUMS, SHORT) for _ in range(2))
    assert first.results == second.results
    assert torch.equal(state, torch.random.get_rng_state())
    assert trained.training
    assert any(p.requires_grad for p in trained.parameters())


def test_a_directory_of_the_weights_before_is_not_taken_up(tokenizer, tmp_path):
    model = with_adapter(make_model(tokenizer))

    def evaluate():
        options = {"out": tmp_path / "run", "append_results": tmp_path / "all.jsonl"}
        return evaluate_model_on("gsm8k", model, None, tokenizer, None, SUMS[:1], SHORT, **options)

    assert evaluate().results == evaluate().results
    assert len((tmp_path / "all.jsonl").read_text().splitlines()) == 2
    with torch.no_grad():
        next(p for p in model.parameters() if p.requires_grad).add_(0.1)
    with pytest.raises(InputError, match="run"):
        evaluate()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"test_data": []}, "empty"),
        ({"test_data": ["a question"]}, "entry 0"),
        ({"hyperparameters": {"cot_length": "long"}}, "cot_length"),
        ({"answer_extraction_method": "ancor"}, "unknown extractor"),
        ({"tokenizer": None}, "tokenizer"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_line(trained, tokenizer, wrong, said):
    given = {"tokenizer": tokenizer, "test_data": SUMS, "hyperparameters": SHORT, **wrong}
    with pytest.raises(InputError, match=said) as caught:
        evaluate_model_on("gsm8k", trained, **given)
    assert len(str(caught.value).splitlines()) == 1


# --- the command


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "test.jsonl"
    rows = [{"question": f"What is {i} + 1?", "answer": f"So it is\n#### {i + 1}"} for i in range(6)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def flags(run_folder, data, *more):
    usual = ["--cot_length", "6", "--answer-length", "4", "--device", "cpu", "--data", data]
    return [str(f) for f in ("--task_type", "gsm8k", "--model_path", run_folder, *usual, *more)]


def test_every_adapter_of_a_run_gets_a_line_in_the_order_of_its_number(run_folder, data, tmp_path, capsys):
    output = tmp_path / "results.jsonl"
    argv = flags(run_folder, data, "--all_adapters", "--answer_extraction_method", "simple", "--output", output)
    assert main([*argv, "--num_samples", "2", "--stride", "2"]) == 0
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["batch_index"] for line in lines] == [500, 1000]
    assert [d["question"] for d in lines[0]["detailed_results"]] == ["What is 0 + 1?", "What is 2 + 1?"]
    assert lines[0]["detailed_results"] != lines[1]["detailed_results"]
    assert "adapter_500: gsm8k accuracy" in capsys.readouterr().out


def test_the_same_command_again_computes_nothing_and_the_line_lies_beside_the_model(run_folder, data, monkeypatch):
    argv = flags(run_folder / "adapter_500", data, "--limit", 2, "--no-markovian")
    assert main(argv) == 0
    monkeypatch.setattr(Transformers, "_write", lambda *_: pytest.fail("asked again"))
    assert main(argv) == 0
    first, second = (json.loads(line) for line in (run_folder / "results.jsonl").read_text().splitlines())
    assert first["detailed_results"] == second["detailed_results"]
    assert len(list((run_folder / "kofn").glob("gsm8k-adapter_500-*/run.json"))) >= 1


@pytest.mark.parametrize("flag", ["--model_path", "--model-path"])
def test_the_command_is_a_module_and_loads_nothing_to_say_that_a_folder_is_not_there(flag):
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "kofn.integrations.evaluation",
        "--task_type",
        "gsm8k",
        flag,
        "./nowhere",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("kofn: hf:nowhere: no such folder")
    assert not {"torch", "transformers", "polars", "numpy"} & {line.split()[-1] for line in done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--model_path", "RUN"], "adapter_500, adapter_1000: name one of them, or give --all-adapters"),
        (["--model_path", "RUN/adapter_7"], "no such folder"),
        ([], "--model-path"),
        (["--model_path", "RUN/adapter_500", "--stride", "0"], "stride"),
        (["--model_path", "RUN/adapter_500", "--base_model", "RUN/none"], "no such folder"),
    ],
    ids=["a run", "not there", "nothing", "stride", "base"],
)
def test_a_mistake_of_the_command_is_one_line_and_exit_2(more, said, run_folder, data, capsys):
    given = [m.replace("RUN", str(run_folder)) for m in more]
    assert main(["--task_type", "gsm8k", "--data", str(data), *given]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert len(printed.splitlines()) == 1


# --- the callback


def train(tmp_path, model, tokenizer, callback, steps=4, **arguments):
    from transformers import Trainer, TrainingArguments, default_data_collator

    row = tokenizer("The quick brown fox jumps over the lazy dog")["input_ids"]
    arguments = TrainingArguments(
        output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=2, use_cpu=True, report_to=[],
        disable_tqdm=True, logging_steps=1, save_strategy="no", learning_rate=0.05,
        dataloader_pin_memory=False, **arguments,
    )  # fmt: skip
    rows = [{"input_ids": row, "labels": row}] * 8
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:2], callbacks=[callback],
                      processing_class=tokenizer, data_collator=default_data_collator)  # fmt: skip
    trainer.train()
    return trainer


def weights_of(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


quiet = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch|transformers|accelerate")


@pytest.mark.long
@quiet
def test_a_trainer_evaluates_every_so_many_steps_and_trains_as_if_nothing_had_happened(tmp_path, tokenizer):
    from kofn.integrations.trainer import KofnCallback

    callback = KofnCallback(
        "gsm8k", every_steps=2, repeats=2, test_data=SUMS, two_stage=True, hyperparameters=SHORT,
        answer_extraction_method="anchor",
    )  # fmt: skip
    model = with_adapter(make_model(tokenizer))
    trainer = train(tmp_path / "with", model, tokenizer, callback)
    logged = [entry for entry in trainer.state.log_history if "eval_kofn_accuracy" in entry]
    assert [entry["step"] for entry in logged] == [2, 4]
    lines = [json.loads(line) for line in (tmp_path / "with" / "results.jsonl").read_text().splitlines()]
    assert [line["batch_index"] for line in lines] == [2, 4]
    assert [len(d["repeats"]) for d in lines[0]["detailed_results"]] == [2, 2, 2]
    texts = [[d["reasoning"] for d in line["detailed_results"]] for line in lines]
    assert texts[0] != texts[1]  # two more steps made another model of it
    assert model.training

    alone = with_adapter(make_model(tokenizer))
    from transformers import TrainerCallback

    train(tmp_path / "without", alone, tokenizer, TrainerCallback())
    assert torch.equal(weights_of(model), weights_of(alone))


@quiet
def test_a_trainer_that_evaluates_gets_the_numbers_among_its_own(tmp_path, tokenizer):
    from kofn.integrations.trainer import KofnCallback

    seen = {}

    class Watcher(KofnCallback):
        def on_evaluate(self, args, state, control, metrics=None, **more):
            super().on_evaluate(args, state, control, metrics=metrics, **more)
            seen.update(metrics)

    watcher = Watcher("gsm8k", test_data=SUMS, limit=1, max_tokens=4, temperature=0.5)
    train(tmp_path, make_model(tokenizer), tokenizer, watcher, steps=1, eval_strategy="steps", eval_steps=1)
    assert "eval_kofn_accuracy" in seen
    assert "eval_loss" in seen


@quiet
def test_a_trainer_that_is_named_logs_the_numbers_itself(tmp_path, tokenizer):
    from kofn.integrations.trainer import KofnCallback

    class Logger:
        logged: list = []  # noqa: RUF012 - one test

        def log(self, numbers):
            self.logged.append(numbers)

    callback = KofnCallback("gsm8k", every_steps=1, test_data=SUMS, limit=1, max_tokens=4, trainer=Logger())
    train(tmp_path, make_model(tokenizer), tokenizer, callback, steps=1)
    assert [sorted(numbers)[0] for numbers in Logger.logged] == ["eval_kofn_accuracy"]


def test_data_that_is_not_there_is_said_before_the_first_step(tmp_path, tokenizer):
    from kofn.integrations.trainer import KofnCallback

    callback = KofnCallback("gsm8k", every_steps=2, data=str(tmp_path / "none.jsonl"))
    with pytest.raises(InputError, match=r"none\.jsonl"):
        train(tmp_path, make_model(tokenizer), tokenizer, callback)
    with pytest.raises(InputError, match="every_steps"):
        KofnCallback("gsm8k", every_steps=0, test_data=SUMS)


def test_without_transformers_the_callback_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.delitem(vars(kofn.integrations.trainer), "KofnCallback", raising=False)
    with pytest.raises(MissingExtra, match=r"kofn\[hf\]"):
        _ = kofn.integrations.trainer.KofnCallback
