"""Runs sent on: what is sent under which name, and that a sink that fails loses nothing and shows no secret."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.loopback import serving

import kofn
from kofn.cli import kofn as command
from kofn.errors import InputError, WorldError
from kofn.integrations.sinks import SinkAddress, send_run, tracker_name, tracker_run_of

EXAMPLES = Path(__file__).parents[2] / "examples"
VALID = re.compile(r"[\w.-]{1,250}")  # what both packages take


def make(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, and the same graded again."""
    folder = tmp_path_factory.mktemp("runs")
    more = [
        "--by",
        "kind",
        "-a",
        "any_pass",
        "-a",
        "pass@2",
        "-a",
        "pass^2",
        "-a",
        "ndcg(k=3)",
        "--verdict",
        "any_pass",
    ]
    assert make("score", EXAMPLES / "arithmetic.jsonl", *more, "--out", folder / "first").exit_code == 0
    assert make("score", folder / "first", "--extract", "number_simple", "--out", folder / "again").exit_code == 0
    return folder


@pytest.fixture
def sent(monkeypatch):
    """Sinks that note what they are given; one at `down` fails as packages do."""
    found = []

    def sender(address, sending):
        if address.place.endswith("down"):
            raise ConnectionError(f"cannot reach {address.place}: password pw was refused")
        found.append((address, sending))
        print("printed by a package: http://me:pw@host")  # noqa: T201 - as they do
        return f"sent to {address}"

    monkeypatch.setattr(SinkAddress, "sender", lambda _: sender)
    monkeypatch.setattr(SinkAddress, "check", lambda _: None)
    return found


def test_every_estimate_is_a_metric_with_its_ends_under_a_valid_name(folder):
    run = kofn.load_run(folder / "first")
    sending = tracker_run_of(run)
    e = run.result.get("pass@2")
    metrics = sending.metrics
    assert [metrics[f"numeric.pass_at_2{part}"] for part in ("", ".low", ".high", ".n")] == [e.point, e.low, e.high, 60]
    one = run.result.get("pass^2", segment="kind=two steps")
    assert metrics["numeric.pass_hat_2.kind.two_steps"] == one.point
    assert metrics["numeric.ndcg_k_3"] == run.result.get("ndcg(k=3)").point
    assert (metrics["cases"], metrics["candidates"], metrics["missing"]) == (60, 300, 0)
    assert metrics["pass_rate"] == run.result.get("any_pass").point
    assert metrics["cost"] == pytest.approx(0.0058046)
    assert all(VALID.fullmatch(name) for name in (*metrics, *sending.params, *sending.tags))
    # four numbers an estimate, and seven of the whole run
    assert len(metrics) == 4 * len(run.result.estimates) + 7


def test_segments_that_differ_in_signs_alone_do_not_share_a_name(tmp_path):
    rows = [{"id": str(i), "lang": lang, "pass": 1} for i, lang in enumerate(["C+", "C-+", "C#", "C♯"])]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert make("score", path, "-a", "mean", "--by", "lang", "--out", tmp_path / "run").exit_code == 0
    metrics = tracker_run_of(kofn.load_run(tmp_path / "run")).metrics
    assert {name for name in metrics if re.fullmatch(r"pass\.mean\.lang\.[^.]+", name)} == {
        "pass.mean.lang.C",
        "pass.mean.lang.C-",
        "pass.mean.lang.C_2",
        "pass.mean.lang.C_3",
    }


def test_parameters_and_tags_say_what_the_run_is(folder):
    first, again = (tracker_run_of(kofn.load_run(folder / name)) for name in ("first", "again"))
    assert first.params["task"] == "arithmetic"
    assert (first.params["extractor"], again.params["extractor"]) == ("number", "number_simple")
    assert first.params["by"] == "kind"
    assert first.params["aggregate"] == "any_pass, pass@2, pass^2, ndcg(k=3)"
    assert first.params["verdict"].startswith("any_pass")
    assert first.params["sources"].endswith("arithmetic.jsonl")
    assert first.tags["kofn.run"] == first.digest
    assert first.tags["kofn.version"] == kofn.__version__
    assert first.tags["kofn.status"] == "not passed"
    assert again.tags["kofn.parent"] == first.digest
    assert "kofn.parent" not in first.tags


@pytest.mark.parametrize(
    ("artifacts", "names"),
    [
        ("report", {"report.html", "evaluation.json", "run.json"}),
        ("none", set()),
        (
            "all",
            {"report.html", "evaluation.json", "run.json", "candidates.parquet", "cases.parquet", "reports.parquet",
             "results.jsonl"},
        ),
    ],
)  # fmt: skip
def test_files_are_those_asked_for(artifacts, names, folder):
    sending = tracker_run_of(kofn.load_run(folder / "first"), artifacts)
    assert {path.name for path in sending.files} == names


@pytest.mark.parametrize("name", ["", "?", "a" * 999, "日本", "x/y z", "pass@5^2", "..", "--"])
def test_any_name_becomes_a_valid_one(name):
    assert VALID.fullmatch(tracker_name(name))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mlfow:http://x", "unknown sink 'mlfow:': did you mean mlflow:?"),
        ("runs", "unknown sink 'runs': expected mlflow:URI or wandb:PROJECT"),
        ("mlflow:", "sink mlflow: says not where: write mlflow:http://HOST:PORT, or set MLFLOW_TRACKING_URI"),
        ("wandb:a/b/c", "sink wandb:a/b/c: expected wandb:PROJECT or wandb:ENTITY/PROJECT"),
        ("mlflow:http://h?artifacts=some", "unknown artifacts 'some': known: all, none, report"),
    ],
)
def test_an_address_that_makes_no_sense_is_one_line(text, said, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(InputError) as problem:
        SinkAddress.parse(text)
    assert str(problem.value) == said


def test_an_empty_address_is_the_environments(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://me:pw@tracking:5000")
    address = SinkAddress.parse("mlflow:?experiment=nightly&artifacts=all")
    assert address.place == "http://me:pw@tracking:5000"
    assert (str(address), address.text) == (
        "mlflow:http://tracking:5000",
        "mlflow:http://tracking:5000?experiment=nightly&artifacts=all",
    )


def test_a_package_that_is_missing_is_told_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("kofn.integrations.sinks.find_spec", lambda _: None)
    out = tmp_path / "run"
    done = make("score", EXAMPLES / "arithmetic.jsonl", "--out", out, "--sink", "mlflow:http://127.0.0.1:1")
    assert str(done.exception) == "--sink mlflow: needs mlflow-skinny: pip install 'kofn[mlflow]'"
    assert not out.exists()
    done = make("run", "starter", "--sink", "wandb:p", "--out", out)
    assert str(done.exception) == "--sink wandb: needs wandb: pip install 'kofn[wandb]'"
    assert not out.exists()


def test_a_sink_needs_a_run_directory(sent):
    done = make("score", EXAMPLES / "arithmetic.jsonl", "--sink", "mlflow:http://x")
    assert done.exit_code == 2
    assert "--sink shapes the run directory: give --out DIR too" in done.output
    assert sent == []


@pytest.fixture
def sums(tmp_path):
    """A task file with three cases, for any model."""
    records = [{"id": f"q{i}", "question": f"{i} + {i}", "answer": str(2 * i)} for i in range(3)]
    (tmp_path / "sums.jsonl").write_text("\n".join(json.dumps(r) for r in records))
    stages = "stages:\n  - {name: answer, prompt: '{question} =', chat: true}\n"
    (tmp_path / "sums.yaml").write_text(f"name: sums\ndataset: sums.jsonl\nextract: number\n{stages}")
    return tmp_path / "sums.yaml"


def test_score_run_and_report_send_what_they_wrote(sent, sums, tmp_path):
    done = make("score", EXAMPLES / "arithmetic.jsonl", "--out", tmp_path / "a", "--json", "--sink", "wandb:p")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["n_cases"] == 60  # whatever a package prints
    assert "sent to wandb:p" in done.stderr
    done = make("report", tmp_path / "a", "--json", "--sink", "wandb:p", "--sink", "mlflow:http://h?artifacts=none")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["problem_name"] == "arithmetic"
    with serving() as server:
        model = f"openai:m@{server.url}"
        done = make("run", sums, "-m", model, "-r", "2", "--out", tmp_path / "b", "--sink", "wandb:p")
    assert done.exit_code == 0, done.exception
    assert [len(sending.files) for _, sending in sent] == [3, 3, 0, 3]
    assert [sending.name for _, sending in sent] == ["a", "a", "a", "b"]
    assert len({sending.digest for _, sending in sent}) == 2
    assert sent[-1][1].params["model"] == model
    assert sent[-1][1].params["repeats"] == "2"
    assert "pw" not in done.output


def test_a_run_that_was_stopped_is_not_sent(sent, sums, tmp_path):
    with serving() as server:
        few = ["--token-budget", "1", "--concurrency", "1"]
        done = make("run", sums, "-m", f"openai:m@{server.url}", "--out", tmp_path / "b", *few, "--sink", "wandb:p")
    assert isinstance(done.exception, WorldError)
    assert "stopped" in str(done.exception)
    assert sent == []


def test_a_sink_that_fails_keeps_the_run_tries_the_others_and_shows_no_password(sent, tmp_path):
    sinks = ["--sink", "mlflow:http://me:pw@host/down?artifacts=none", "--sink", "wandb:other"]
    done = make("score", EXAMPLES / "arithmetic.jsonl", "--out", tmp_path / "a", *sinks)
    assert isinstance(done.exception, WorldError)
    assert done.exception.exit_code == 3
    assert [str(address) for address, _ in sent] == ["wandb:other"]
    assert kofn.load_run(tmp_path / "a").result.n_cases == 60
    said = str(done.exception)
    assert said.startswith("mlflow:http://host/down: not sent: ConnectionError: cannot reach http://host/down: ")
    assert f"kofn report {tmp_path / 'a'} --sink 'mlflow:http://host/down?artifacts=none' sends it again" in said
    assert "pw" not in said + done.output


def test_secrets_of_the_environment_are_not_shown(folder, sent, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    address = SinkAddress.parse("wandb:p")
    assert "k" * 40 not in address.clean(f"key {'k' * 40} is wrong")
    with pytest.raises(WorldError):
        send_run(kofn.load_run(folder / "first"), SinkAddress.parse("mlflow:http://down"))
