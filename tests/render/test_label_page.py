"""The page to label in, in Chromium: keys, progress, what is kept and what is saved; hostile text stays text."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from kofn.cli.judge_verbs import calibrate_command as command
from kofn.judge.label_sheet import LabelSample, labelling_page
from kofn.judge.labels import read_labels

EVIL = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>"


def sheet_of(*rows):
    return LabelSample(rows=rows, of="candidate", n_passing=1, n_failing=1, n_left=0)


@pytest.fixture
def page(tmp_path):
    rows = [
        {"id": f"q{i}", "index": i, "input": f"question {i}", "output": f"reply {i}", "reference": "so",
         "kind": "short", "judge": i % 2, "weight": 2.5, "human": None}
        for i in range(4)
    ]  # fmt: skip
    path = tmp_path / "sheet.html"
    path.write_text(labelling_page(sheet_of(*rows), "my run"))
    return path


def saved(tab, folder):
    with tab.page.expect_download() as waiting:
        tab.click("#download")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_keys_label_and_the_file_saved_is_one_that_calibrate_reads(page, visit, tmp_path):
    tab = visit(page).when_ready()
    assert "reply 0" in tab.text("#row")
    for key in ("p", "f", "s", "P"):
        tab.keyboard.press(key)
    assert tab.text("#done") == "3 labelled"
    assert tab.eval_on_selector("#progress", "p => p.value") == 3
    path = saved(tab, tmp_path)
    assert path.name == "my_run.labels.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["human"] for r in rows] == [1, 0, None, 1]
    assert rows[1] == {"id": "q1", "index": 1, "kind": "short", "judge": 1, "weight": 2.5, "human": 0}
    assert read_labels(path).indices == (0, 1, 2, 3)
    tab.clean()


def test_arrows_move_and_labels_are_kept_over_a_reload(page, visit):
    tab = visit(page).when_ready()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("f")
    tab.keyboard.press("ArrowLeft")
    assert tab.text("#said") == "you said: fail"
    assert tab.get_attribute("#fail", "aria-pressed") == "true"
    tab.page.reload()
    tab.when_ready()
    assert tab.text("#done") == "1 labelled"
    assert tab.text("#place") == "1 of 4"  # the first that is not labelled
    tab.click("#next")
    assert tab.text("#said") == "you said: fail"
    tab.keyboard.press("s")  # takes it back
    assert tab.text("#done") == "0 labelled"
    tab.clean()


def test_the_verdict_of_the_judge_is_hidden_until_asked_for(page, visit):
    tab = visit(page).when_ready()
    assert "judge: " not in tab.text("#row")
    tab.check("#peek")
    assert "judge: fail" in tab.text("#row")
    tab.clean()


def test_hostile_text_stays_text(visit, tmp_path):
    row = {"id": EVIL, "input": EVIL, "outputs": [EVIL, "a\u202eb"], "kind": EVIL, "judge": 1, "weight": 1.0}
    path = tmp_path / "evil.html"
    path.write_text(labelling_page(sheet_of(row), EVIL))
    tab = visit(path).when_ready()
    assert tab.evaluate("window.pwned") is None
    assert tab.text("#row").count("onerror") == 4
    assert "U+202E" in tab.text("#row")
    tab.clean()


def test_the_verb_writes_the_page(visit, tmp_path):
    rows = [
        {"id": f"q{i}", "outputs": [{"text": f"one {i}", "pass": i % 3 > 0}, {"text": "two", "pass": False}]}
        for i in range(12)
    ]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    done = CliRunner().invoke(command, ["--sample", "6", str(tmp_path / "o.jsonl"), "-o", str(tmp_path / "s.html")])
    assert done.exit_code == 0, done.output
    tab = visit(tmp_path / "s.html").when_ready()
    assert tab.text("#place") == "1 of 6"
    assert "Output 2 of 2" in tab.text("#row")
    tab.clean()
