"""`kofn list tasks` and `kofn describe`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from kofn.tasks import names


def kofn(*args, folder, data=""):
    env = {**os.environ, "KOFN_DATA": str(data), "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "kofn", *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=env,
    )


def test_the_list_of_tasks_says_which_have_their_data_here(tmp_path):
    done = kofn("list", "tasks", "--json", folder=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)["tasks"]}
    assert list(rows) == names()
    assert rows["starter"]["items"] >= 60
    assert rows["gsm8k"]["items"] is None
    output = kofn("list", "tasks", folder=tmp_path).stdout
    assert f"({rows['starter']['items']} items)" in output
    assert "(its data is not here)" in output


def test_a_description_shows_data_prompts_grading_and_the_first_item(tmp_path):
    (tmp_path / "gsm8k_test.jsonl").write_text(json.dumps({"question": "1 + \x1b[31m1?", "answer": "#### 2"}))
    done = kofn("describe", "gsm8k", folder=tmp_path, data=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in ("gsm8k_test.jsonl (1 items)", "temperature 0.7", "| {question}", "extract number, metric numeric",
                 "intended use: vote", r"| 1 + \x1b[31m1?", "expected 2"):  # fmt: skip
        assert part in done.stdout
    data = json.loads(kofn("describe", "gsm8k", "--json", folder=tmp_path, data=tmp_path).stdout)
    assert (data["items"], data["example"]["id"]) == (1, "gsm8k/0")
    assert data["example"]["prompt"][0]["role"] == "user"


def test_without_its_data_a_task_is_described_all_the_same(tmp_path):
    done = kofn("describe", "mmlu", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "its data is not here (looked for mmlu or MMLU in" in done.stdout
    assert "extract letter, metric choice" in done.stdout


def test_scored_options_are_shown(tmp_path):
    task = tmp_path / "t.yaml"
    task.write_text(
        "name: t\noutput_type: multiple_choice\ndataset:\n  - {question: Q, choices: [red, blue], answer: blue}\n"
    )
    output = kofn("describe", "t.yaml", folder=tmp_path).stdout
    assert "scored B: ' blue'" in output


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["describe", "starer"], "kofn: unknown task 'starer': did you mean starter?"),
        (["describe", "t.yaml"], "kofn: t.yaml: cannot be read: No such file or directory"),
        (["describe", "gsm8k", "--data", "nowhere"], "kofn: nowhere: no such file or folder"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(tmp_path, args, said):
    done = kofn(*args, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1
