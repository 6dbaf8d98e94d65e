"""Tags of runs: every verb that writes a run takes them, run.json keeps them, reports show them."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.programs import need_sandbox, problem_in, submission_in

import kofn
from kofn.cli import kofn as command
from kofn.errors import InputError
from kofn.render.run_directory import update_run
from kofn.runs.files import MANIFEST
from kofn.runs.load import load_graded
from kofn.runs.record import load_run
from kofn.scoring.configuration import validate_tags
from kofn.viewer.run_folder import RunFolder
from kofn.viewer.run_list import RunList

ROWS = [{"id": f"q{i}", "reference": "4", "outputs": ["It is 4", f"So {i}"]} for i in range(5)]


def invoke(*words):
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def tags_in(directory):
    return json.loads((directory / MANIFEST).read_text()).get("tags")


def test_score_keeps_tags_and_reports_show_them(rows, tmp_path):
    run = tmp_path / "runs" / "one"
    invoke("score", rows, "--out", run, "--tag", "baseline", "--tag", "<b>night</b>", "--tag", "baseline")
    assert tags_in(run) == ["baseline", "<b>night</b>"]
    assert "tags        baseline, <b>night</b>" in invoke("report", run)
    text = (run / "report.html").read_text()
    assert '<li class="tag"><bdi>baseline</bdi></li>' in text
    assert "<bdi>&lt;b&gt;night&lt;/b&gt;</bdi>" in text
    assert [line.tags for line in RunList(RunFolder(tmp_path / "runs")).lines()] == [("baseline", "<b>night</b>")]


def test_a_run_that_is_written_again_keeps_its_tags(rows, tmp_path):
    invoke("score", rows, "--out", tmp_path / "one", "--tag", "kept")
    what = load_graded(tmp_path / "one")
    update_run(what.run, what.result)
    assert tags_in(tmp_path / "one") == ["kept"]


def test_without_tags_nothing_is_said_of_them(rows, tmp_path):
    invoke("score", rows, "--out", tmp_path / "one")
    assert tags_in(tmp_path / "one") is None
    assert "tags " not in invoke("report", tmp_path / "one")
    assert 'class="tagline" aria-label="Tags"' not in (tmp_path / "one" / "report.html").read_text()


def test_run_takes_tags(tmp_path):
    (tmp_path / "sums.jsonl").write_text('{"id": "q1", "question": "2 + 2", "answer": "4"}\n')
    stage = "{name: answer, prompt: '{question} ='}"
    task = f"name: sums\ndataset: sums.jsonl\nextract: number\nstages:\n  - {stage}\n"
    (tmp_path / "sums.yaml").write_text(task)
    done = kofn.run(tmp_path / "sums.yaml", model=lambda _: "4", out=tmp_path / "out", tags=["a", "b"])
    assert done.manifest["tags"] == tags_in(tmp_path / "out") == ["a", "b"]
    words = ["run", tmp_path / "sums.yaml", "-m", "fake:builtins:str", "--out", tmp_path / "by verb", "--tag", "c"]
    invoke(*words)
    assert tags_in(tmp_path / "by verb") == ["c"]
    with pytest.raises(InputError, match="tag"):
        kofn.run(tmp_path / "sums.yaml", model=lambda _: "4", tags=["\n"])


def test_verify_takes_tags_for_every_run_it_writes(tmp_path):
    need_sandbox()
    problem = problem_in(tmp_path)
    programs = [submission_in(tmp_path, "print('hello there')", name) for name in ("one", "two")]
    words = ["verify", problem, *programs, "--out", tmp_path / "v", "--tag", "x"]
    done = CliRunner().invoke(command, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    found = {
        str(path.parent.relative_to(tmp_path / "v")): tags_in(path.parent) for path in (tmp_path / "v").rglob(MANIFEST)
    }
    assert found == {"one/one": ["x"], "two/one": ["x"], "set": ["x"]}


@pytest.mark.parametrize("tags", [[""], ["a\nb"], ["x" * 81], ["\u202e"], [str(i) for i in range(51)]])
def test_tags_that_nobody_can_read_are_refused(tags):
    with pytest.raises(InputError, match="tag"):
        validate_tags(tags)


def test_a_tag_is_for_a_run_directory(rows):
    done = CliRunner().invoke(command, ["score", str(rows), "--tag", "x"])
    assert done.exit_code == 2
    assert "--tag shapes the run directory: give --out DIR too" in done.output


def test_tags_that_are_no_texts_make_a_run_unreadable(rows, tmp_path):
    invoke("score", rows, "--out", tmp_path / "one", "--tag", "x")
    manifest = json.loads((tmp_path / "one" / MANIFEST).read_text())
    (tmp_path / "one" / MANIFEST).write_text(json.dumps({**manifest, "tags": [1]}))
    with pytest.raises(InputError, match=r"tags\.0"):
        load_run(tmp_path / "one")
