"""The page to label in, in Chromium: keys, progress, what is kept and what is saved; hostile text stays text."""

from __future__ import annotations

import json
from importlib.resources import files

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


def labelling(visit, path, annotator="Ann"):
    """The page after the annotator has given a name."""
    tab = visit(path).when_ready()
    tab.fill("#by", annotator)
    tab.click("#named")
    tab.wait_for_selector("#name-dialog", state="hidden")
    return tab


def saved(tab, folder):
    with tab.page.expect_download() as waiting:
        tab.click("#download")
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_keys_label_and_the_file_saved_is_one_that_calibrate_reads(page, visit, tmp_path):
    tab = labelling(visit, page)
    assert "reply 0" in tab.text("#row")
    for key in ("p", "f", "s", "P"):
        tab.keyboard.press(key)
    assert tab.text("#done") == "3 labelled"
    assert tab.eval_on_selector("#progress", "p => p.value") == 3
    path = saved(tab, tmp_path)
    assert path.name == "my_run.Ann.labels.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [r["human"] for r in rows] == [1, 0, None, 1]
    assert rows[1] == {"id": "q1", "index": 1, "kind": "short", "judge": 1, "weight": 2.5, "human": 0,
                       "annotator": "Ann", "question": "Is this output good?"}  # fmt: skip
    assert "annotator" not in rows[2]
    assert read_labels(path).indices == (0, 1, 2, 3)
    tab.clean()


def test_arrows_move_and_labels_are_kept_over_a_reload(page, visit):
    tab = labelling(visit, page)
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("f")
    tab.keyboard.press("ArrowLeft")
    assert tab.text("#said") == "your label: fail"
    assert tab.get_attribute("#fail", "aria-pressed") == "true"
    tab.page.reload()
    tab.when_ready()
    assert tab.text("#done") == "1 labelled"
    assert tab.text("#place") == "1 of 4"  # the first that is not labelled
    tab.click("#next")
    assert tab.text("#said") == "your label: fail"
    tab.keyboard.press("s")  # takes it back
    assert tab.text("#done") == "0 labelled"
    tab.clean()


def test_annotators_label_apart_and_the_question_can_be_edited(page, visit, tmp_path):
    tab = labelling(visit, page)
    tab.keyboard.press("p")
    tab.click("#edit summary")
    tab.fill("#question", "Is the reply polite?")
    tab.click("text=Save question")
    assert tab.text("#asked") == "Is the reply polite?"
    tab.keyboard.press("f")
    tab.click("#rename")
    tab.fill("#by", "Ben")
    tab.click("#named")
    tab.wait_for_selector("#who:has-text('Ben')")
    assert (tab.text("#said"), tab.text("#done")) == ("not labelled", "0 labelled")
    tab.keyboard.press("f")
    theirs = saved(tab, tmp_path)
    tab.page.reload()
    tab.when_ready()
    assert (tab.text("#who"), tab.text("#asked")) == ("Ben", "Is the reply polite?")
    tab.click("#rename")
    tab.fill("#by", "Ann")
    tab.click("#named")
    tab.wait_for_selector("#done:has-text('2 labelled')")
    mine = saved(tab, tmp_path)
    rows = [json.loads(line) for line in mine.read_text().splitlines()]
    assert [row.get("question") for row in rows[:3]] == ["Is this output good?", "Is the reply polite?", None]
    found = read_labels([mine, theirs])
    assert found.annotators == ("Ann", "Ben")
    assert found.tied.tolist() == [True, False, False, False]  # one passes the first, the other fails it
    tab.clean()


def test_the_verdict_of_the_judge_is_hidden_until_asked_for(page, visit):
    tab = labelling(visit, page)
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


@pytest.mark.browser(quick=1)
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(visit, page, named, scheme):
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    tab = labelling(visit, page) if named else visit(page).when_ready()
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.evaluate((files(axe) / "axe.min.js").read_text())
    found = tab.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [one["id"] for one in found["violations"] if one["impact"] in ("serious", "critical")] == []


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
