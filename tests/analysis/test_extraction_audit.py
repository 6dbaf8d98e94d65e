"""Extractors compared: the matrix, the failures and the scores are those of each extractor by itself."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.shared import DATA, needs_shared

import kofn
from kofn.analysis.extraction_audit import audit_extractors, extractors_for
from kofn.errors import InputError
from kofn.importers.base import ReadOptions
from kofn.registry import extractor
from kofn.render.audit_report import audit_page, format_audit
from kofn.runs.load import load_table

EVIL = "</script><script>window.pwned=1</script><img src=x onerror='window.pwned=2'>\u202e"
MATH = DATA / "sets" / "nemo_math_50x3.jsonl"
NAMES = ["number", "number_anchor", "number_simple", "last_line"]


def table(rows):
    return load_table(rows, ReadOptions(everything=True))


@pytest.mark.long
@given(st.lists(st.text("0123456789=. \nAnswer:", max_size=30), min_size=1, max_size=12))
def test_the_audit_is_what_each_extractor_says_by_itself(texts):
    rows = [{"id": f"q{i}", "reference": "4", "outputs": [text]} for i, text in enumerate(texts)]
    found = audit_extractors(table(rows), NAMES)
    answers = {name: [extractor(name)(text) for text in texts] for name in NAMES}
    assert found.n == len(texts)
    for a in NAMES:
        assert found.n_failed[a] == answers[a].count(None)
        score = kofn.score(rows, extract=a, metric="numeric", aggregate=["mean"])
        assert found.estimates[a][0].point == score.get("mean").point
        for b in NAMES:
            same = [x == y for x, y in zip(answers[a], answers[b], strict=True)]
            assert found.agreement[a][b] == pytest.approx(sum(same) / len(same))
    differ = {f"q{i}" for i in range(len(texts)) if len({answers[name][i] for name in NAMES}) > 1}
    assert {one.case_id for one in found.disagreements} == differ


def test_those_on_which_a_verdict_hangs_come_first():
    rows = [
        {"id": "same", "reference": "9", "outputs": ["Answer: 1 (x = 2)"]},
        {"id": "hangs", "reference": "2", "outputs": ["Answer: 1 (x = 2)"]},
    ]
    found = audit_extractors(table(rows), ["number", "number_simple"])
    assert [(one.case_id, one.matters) for one in found.disagreements] == [("hangs", True), ("same", False)]
    assert found.n_verdicts == 1


def test_without_references_there_is_agreement_and_no_score():
    found = audit_extractors(table([{"id": "q", "outputs": ["4", "x = 5"]}]), ["number", "last_line"])
    assert found.metric is None
    assert found.estimates == {}
    assert found.span is None
    assert "nothing is graded" in audit_page(found)
    assert format_audit(found)


def test_outputs_without_texts_are_refused():
    rows = [{"id": "q", "scores": [1.0, 0.0]}]
    with pytest.raises(InputError, match="no texts"):
        extractors_for(table(rows))
    with pytest.raises(InputError, match="twice"):
        audit_extractors(table([{"id": "q", "outputs": ["4"]}]), ["number", "number"])


def run(*args, code=0):
    done = subprocess.run([sys.executable, "-m", "kofn", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.mark.commands
def test_the_verb_prints_a_table_json_and_a_page(tmp_path):
    path = tmp_path / "o.jsonl"
    rows = [{"id": f"q{i}", "reference": "4", "outputs": ["Answer: 4, x = 1", "4"]} for i in range(5)]
    path.write_text("\n".join(map(json.dumps, rows)))
    printed = run("extract-audit", path, "--extract", "number", "--extract", "number_simple", "--show", "1")
    assert "they disagree on 5 outputs (50.0%)" in printed
    assert "4 more" in printed
    report = json.loads(run("extract-audit", path, "--json", "--html", tmp_path / "a.html"))
    assert report["chosen"] == "number"
    assert report["n"] == 10
    assert "Outputs they read differently" in (tmp_path / "a.html").read_text()
    assert "unknown extractor" in run("extract-audit", path, "--extract", "nosuch", code=2)


@pytest.mark.long
def test_a_model_reads_the_outputs_too_and_what_it_said_is_kept(tmp_path, monkeypatch):
    (tmp_path / "kofn_reader.py").write_text("def seven(prompt):\n    open('asked', 'a').write('x')\n    return '7'\n")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "o.jsonl"
    rows = [{"id": f"q{i}", "reference": "7", "outputs": ["It is 4", "No, 7"]} for i in range(3)]
    path.write_text("\n".join(map(json.dumps, rows)))
    args = ("extract-audit", path, "--model", "fake:kofn_reader:seven", "--store", tmp_path / "kept", "--json")
    report = json.loads(run(*args))
    name = next(n for n in report["extractors"] if n.startswith("fake"))
    assert report["estimates"][name][0]["point"] == 1.0
    assert report["estimates"]["number"][0]["point"] == 0.5
    assert "6 calls" in report["told"][-1]
    again = json.loads(run(*args))
    assert again["estimates"] == report["estimates"]
    assert (tmp_path / "asked").read_text() == "x" * 6  # nothing is asked twice


@pytest.mark.long
@needs_shared(MATH)
def test_real_outputs_span_more_than_most_models_differ():
    found = audit_extractors(load_table(str(MATH), ReadOptions()), ["math", "boxed", "number"])
    assert (found.n, found.n_cases, found.metric) == (150, 50, "math_equal")
    assert found.span > 0.1


def test_the_page_opens_from_disk_and_hostile_text_stays_text(visit, tmp_path):
    rows = [
        {"id": f"{EVIL}{i}", "reference": f"4{EVIL}", "outputs": [f"{EVIL} 5 x = 1 {EVIL}\n\nAnswer: 4"]}
        for i in range(4)
    ]
    path = tmp_path / "audit.html"
    path.write_text(
        audit_page(audit_extractors(table(rows), ["number", "number_simple", "last_line"])), encoding="utf-8"
    )
    tab = visit(path)
    assert tab.page.evaluate("window.pwned") is None
    assert tab.page.query_selector_all("main img") == []
    assert len(tab.page.query_selector_all("details.change")) == 4
    assert "⟦U+202E⟧" in tab.text("main")
    tab.clean()


@pytest.mark.parametrize("width", [390, 1200])
def test_the_page_fits_a_phone(visit, tmp_path, width):
    rows = [{"id": f"q{i}", "reference": "4", "outputs": ["x" * 500 + " 5 = 1 Answer: 4"]} for i in range(2)]
    path = tmp_path / "audit.html"
    path.write_text(audit_page(audit_extractors(table(rows), ["number", "number_simple"])), encoding="utf-8")
    tab = visit(path)
    tab.page.set_viewport_size({"width": width, "height": 800})
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
