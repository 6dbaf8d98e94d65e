"""Blind labels in the viewer: drawn as `kofn calibrate` draws, saved at once, none lost, read by `kofn calibrate`."""

from __future__ import annotations

import errno
import html
import json
import os
import random
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from contextlib import ExitStack
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner
from tests.viewer.runs import EVIL, small_rows, write
from tests.viewer.serving import ask, open_in, served

from kofn.cli import kofn as main
from kofn.viewer import run_labels
from kofn.viewer.run_labels import LabelUpdate, read_sheet, save_labels

DRAWN = ("id", "index", "picked", "judge", "weight", "cluster")


def judged_rows(n=40, evil=""):
    draw = random.Random(3)
    return [
        {
            "id": f"q{i}{evil}",
            "input": f"question {i}{evil}",
            "reference": f"SECRET-REFERENCE {i}",
            "cluster": f"c{i // 2}",
            "outputs": [
                {
                    "text": f"reply {i}.{k}{evil}",
                    "label.judge": int(draw.random() < 0.6),
                    "label.strict": int(draw.random() < 0.3),
                    "selector.reward": draw.random(),
                }
                for k in range(3)
            ],
        }
        for i in range(n)
    ]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    root = tmp_path_factory.mktemp("stored")
    write(root / "judged", judged_rows(), aggregate=["mean", "any_pass"])
    write(root / "plain", [{"id": f"q{i}", "outputs": [f"one {i}", f"two {i}"]} for i in range(6)], aggregate=[])
    return root


@pytest.fixture
def folder(stored, tmp_path):
    """Runs without labels."""
    for run in stored.iterdir():
        (tmp_path / run.name).mkdir()
        for file in run.iterdir():
            os.link(file, tmp_path / run.name / file.name)
    return tmp_path


@pytest.fixture
def base(folder):
    with served(folder) as address:
        yield address


def form(base, data, run="judged"):
    kind = "application/x-www-form-urlencoded"
    return ask(base, f"/run/{run}/-/labels", "POST", urlencode(data).encode(), Origin=base, Content_Type=kind)


def post(base, data, run="judged", **more):
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    headers = {"Origin": base, "Content_Type": "application/json", **more}
    return ask(base, f"/run/{run}/-/labels", "POST", body, **headers)


def start(base, run="judged", **data):
    """The name of a new sheet."""
    answer = form(base, {"of": "sets", "n": 10, "metric": "judge", **data}, run)
    assert answer.status == 303, answer.text
    return answer.headers["location"].partition("sheet=")[2]


def rows_of(folder, sheet, run="judged"):
    lines = (folder / run / f"labels-{sheet}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def said(rows, humans):
    """Labels of all rows, as the page sends them."""
    return [
        {"row": i, "id": row["id"], "index": row.get("index", row.get("picked")), "human": human}
        for i, (row, human) in enumerate(zip(rows, humans, strict=True))
    ]


def kofn(*words):
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def calibrate_command(base, address):
    """The command that a page tells people to type."""
    text = ask(base, address).text
    return shlex.split(html.unescape(re.search(r'<pre class="command"[^>]*>(.*?)</pre>', text, re.DOTALL)[1]))


# --- what is drawn


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"of": "sets"}, []),
        ({"of": "candidates", "seed": 7}, ["--candidates", "--seed", 7]),
        ({"of": "picks", "selector": "reward"}, ["--selected", "--by-selector", "reward"]),
        (
            {"of": "sets", "metric": "strict", "aggregate": "all_pass"},
            ["--metric", "strict", "--aggregate", "all_pass"],
        ),
    ],
    ids=lambda value: value["of"] if isinstance(value, dict) else "",
)
def test_a_sheet_holds_the_same_things_as_calibrate_draws(base, folder, tmp_path, options, flags):
    rows = rows_of(folder, start(base, **options))
    kofn("calibrate", "--sample", 10, folder / "judged", "-o", tmp_path / "cli.jsonl", *flags)
    theirs = [json.loads(line) for line in (tmp_path / "cli.jsonl").read_text().splitlines()]
    assert [{k: r[k] for k in DRAWN if k in r} for r in rows] == [{k: r[k] for k in DRAWN if k in r} for r in theirs]
    assert all(row["human"] is None for row in rows)


def test_at_random_each_thing_is_drawn_once_and_no_verdict_is_kept(base, folder):
    rows = rows_of(folder, start(base, of="candidates", metric="", n=5000))
    assert len(rows) == 120
    assert len({(r["id"], r["index"]) for r in rows}) == 120
    assert not any("judge" in r or "weight" in r for r in rows)
    again = rows_of(folder, start(base, of="candidates", metric="", n=20, seed=1))
    assert [r["id"] for r in again] != [r["id"] for r in rows][:20]


def test_the_same_drawing_is_the_same_sheet_and_a_title_makes_another(base, folder):
    first = start(base)
    assert start(base) == first
    second = start(base, title="Änne & co")
    assert second != first
    assert [r["id"] for r in rows_of(folder, second)] == [r["id"] for r in rows_of(folder, first)]
    assert start(base, title="Änne & co") == second
    third = start(base, title="Änne + co")  # another title with the same letters
    assert third not in (first, second)
    text = ask(base, "/run/judged/-/labels").text
    assert all(f"sheet={name}" in text for name in (first, second, third))


@pytest.mark.long(quick=2)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"n": 0}, "0 to label: expected a number from 1 to 5,000"),
        ({"n": 5001}, "expected a number from 1"),
        ({"n": "x"}, "n: Input should be a valid integer"),
        ({"of": "all"}, "of: Input should be"),
        ({"seed": -1}, "seed -1: expected"),
        ({"metric": "judg"}, "no metric &#39;judg&#39; here: there is judge, strict"),
        (
            {"of": "picks", "selector": "os:system"},
            "no selector &#39;os:system&#39; here: there is reward, vote, first",
        ),
        ({"aggregate": "os:system"}, "by any_pass or all_pass"),
        ({"extra": "1"}, "extra: Extra inputs are not permitted"),
    ],
)
def test_what_cannot_be_drawn_is_refused_and_nothing_is_written(base, folder, options, why):
    answer = form(base, {"of": "sets", "n": 10, "metric": "judge", **options})
    assert answer.status == 422
    assert why in answer.text
    assert not list((folder / "judged").glob("labels-*"))


# --- what calibrate makes of it


@pytest.mark.commands
@pytest.mark.parametrize(
    "options",
    [
        {"of": "sets"},
        {"of": "candidates"},
        {"of": "picks", "selector": "reward"},
        {"of": "candidates", "metric": ""},
        {"of": "sets", "metric": "strict", "aggregate": "all_pass"},
    ],
    ids=lambda options: "-".join(options.values()),
)
def test_calibrate_reads_the_labels_as_they_are_with_the_command_the_page_tells(base, folder, options):
    sheet = start(base, n=30, **options)
    rows = rows_of(folder, sheet)
    humans = [None if i % 7 == 3 else int(i % 3 > 0) for i in range(len(rows))]
    labels = [one for one in said(rows, humans) if one["human"] is not None]
    assert post(base, {"sheet": sheet, "by": "Anna", "labels": labels}).status == 200
    command = calibrate_command(base, f"/run/judged/-/labels?sheet={sheet}")
    assert command[:2] == ["kofn", "calibrate"]
    if options["of"] == "sets":  # once as people type it
        typed = [sys.executable, "-m", *command, "--json"]
        found = json.loads(subprocess.run(typed, capture_output=True, check=True).stdout)
    else:
        found = json.loads(kofn(*command[1:], "--json"))
    assert found["of"] == ("candidate" if options["of"] == "candidates" else "set")
    assert (found["n_labels"], found["n_unlabelled"]) == (len(labels), humans.count(None))
    assert found["corrected"]["point"] is not None
    if options.get("metric") != "":
        weights = Counter()
        for row, human in zip(rows, humans, strict=True):
            weights[row["judge"], human] += row["weight"]
        assert found["confusion"]["tp"] == pytest.approx(weights[1, 1])
        assert found["confusion"]["fn"] == pytest.approx(weights[0, 1])
    assert "differs" not in " ".join(found["warnings"])


def test_the_table_of_verdicts_is_shown_to_whoever_asks_and_says_what_calibrate_says(base, folder):
    sheet = start(base, of="candidates", n=40)
    rows = rows_of(folder, sheet)
    humans = [int(i % 3 > 0) if i < 25 else None for i in range(40)]
    labels = [one for one in said(rows, humans) if one["human"] is not None]
    post(base, {"sheet": sheet, "labels": labels})
    counts = Counter((row["judge"], human) for row, human in zip(rows, humans, strict=True))
    page = f"/run/judged/-/labels?sheet={sheet}"
    assert "sensitivity" not in ask(base, page).text
    text = ask(base, f"{page}&confusion=1").text
    cells = [int(n) for n in re.findall(r'<td class="n">(\d+)</td>', text)[:4]]
    assert cells == [counts[1, 1], counts[1, 0], counts[0, 1], counts[0, 0]]
    found = json.loads(kofn(*calibrate_command(base, page)[1:], "--json"))
    assert re.findall(r'<li data-code="([\w-]+)">', text) == [one["code"] for one in found["coded_warnings"]] != []
    wait_for_item = dict(re.findall(r'<th scope="row">(\w+)</th><td class="n">([-\d.]+)</td>', text))
    for rate in ("sensitivity", "specificity", "agreement", "kappa"):
        assert float(wait_for_item[rate]) == pytest.approx(found[rate]["point"], abs=0.0006)


def test_a_run_that_nothing_graded_is_labelled_at_random_and_told_to_be_judged(base, folder):
    sheet = start(base, run="plain", of="sets", metric="", n=3)
    assert (
        post(base, {"sheet": sheet, "labels": said(rows_of(folder, sheet, "plain"), [1, 0, 1])}, run="plain").status
        == 200
    )
    text = ask(base, f"/run/plain/-/labels?sheet={sheet}").text
    assert f"kofn judge {folder / 'plain'}" in text
    assert "has not been graded" in ask(base, f"/run/plain/-/labels?sheet={sheet}&confusion=1").text


# --- blind


def test_no_verdict_and_no_label_of_others_leaves_the_server(base, folder):
    sheet = start(base, of="candidates", n=10)
    rows = rows_of(folder, sheet)
    post(base, {"sheet": sheet, "by": "Anna", "labels": said(rows, [1] * 10)[:4]})
    seen = []
    for at in range(1, 11):
        found = ask(base, f"/run/judged/-/labels.json?sheet={sheet}&at={at}&by=Ben").json()
        assert set(found) == {"at", "id", "index", "markup", "human", "skipped", "states"}
        assert found["human"] is None
        assert found["states"] == 10 * "o"
        seen.append(found["markup"])
    anna = ask(base, f"/run/judged/-/labels.json?sheet={sheet}&at=1&by=Anna").json()
    assert (anna["human"], anna["states"]) == (1, "dddd" + 6 * "o")
    assert ask(base, f"/run/judged/-/labels.json?sheet={sheet}&by=Anna").json()["at"] == 4
    assert ask(base, f"/run/judged/-/labels.json?sheet={sheet}&by=Ben").json()["at"] == 0
    text = "".join(seen) + ask(base, f"/run/judged/-/labels?sheet={sheet}&at=2").text
    assert "reply" in text
    for word in ("SECRET-REFERENCE", "13.4", str(rows[0]["weight"]), "Anna", "reward"):
        assert word not in text
    assert "SECRET-REFERENCE" in ask(base, f"/run/judged/-/labels.json?sheet={sheet}&at=1&reference=1").text


def test_each_annotator_labels_apart_from_the_others(base, folder):
    sheet = start(base, of="candidates", n=4)
    labels = said(rows_of(folder, sheet), [1, 1, 0, 0])
    post(base, {"sheet": sheet, "by": "Anna", "labels": labels[:1]})
    changed = [{**one, "human": 0} for one in labels[:2]]
    post(base, {"sheet": sheet, "by": "Ben", "labels": changed})
    lines = [(r["id"], r["human"], r.get("annotator")) for r in rows_of(folder, sheet)]
    first, second = labels[0]["id"], labels[1]["id"]
    assert lines[:3] == [(first, 1, "Anna"), (first, 0, "Ben"), (second, 0, "Ben")]
    assert len(lines) == 5
    post(base, {"sheet": sheet, "by": "Ben", "labels": [{**one, "human": None} for one in changed]})
    lines = [(r["human"], r.get("annotator")) for r in rows_of(folder, sheet)]
    assert lines == [(1, "Anna"), (None, None), (None, None), (None, None)]
    text = ask(base, "/run/judged/-/labels").text
    assert "<bdi>Anna</bdi> 1" in text
    assert "Ben" not in text


def test_the_agreement_of_annotators_is_shown_and_is_that_of_calibrate(base, folder):
    sheet = start(base, of="candidates", n=40)
    rows = rows_of(folder, sheet)
    page = f"/run/judged/-/labels?sheet={sheet}"
    given = {"Anna": [i % 2 for i in range(40)], "Ben <b>": [i % 2 if i % 5 else 1 for i in range(40)]}
    for name, humans in given.items():
        post(base, {"sheet": sheet, "by": name, "labels": said(rows, humans)})
        if name == "Anna":
            assert 'id="annotators"' not in ask(base, f"{page}&confusion=1").text
    found = json.loads(kofn(*calibrate_command(base, page)[1:], "--json"))
    agreement = found["annotators"]
    assert (agreement["n"], agreement["n_tied"], agreement["n_labels"]) == (40, 4, {"Anna": 40, "Ben <b>": 40})
    assert agreement["agreement"]["point"] == 0.9
    text = ask(base, f"{page}&confusion=1").text
    table = re.search(r'<table[^>]*id="annotators".*?</table>', text, re.DOTALL)[0]
    assert "Anna and Ben &lt;b&gt;" in table
    assert re.findall(r'<td class="n">([\d.]+)</td>', table) == ["40", "0.900", f"{agreement['kappa']['point']:.3f}"]
    assert "4 tied" in text
    assert "36 labels of 40" in text


def test_an_old_sheet_is_read_and_its_labels_are_those_of_the_person_it_names(base, folder):
    """Sheets had one label per row, with `by`."""
    sheet = start(base, of="candidates", n=3)
    path = folder / "judged" / f"labels-{sheet}.jsonl"
    rows = rows_of(folder, sheet)
    for row in rows:
        del row["sheet"]["question"]
    old = [{**rows[0], "human": 1, "by": "Anna", "at": "then"}, {**rows[1], "human": 0}, {**rows[2], "skipped": True}]
    path.write_text("".join(json.dumps(row) + "\n" for row in old))
    found = read_sheet(folder / "judged", sheet)
    assert (found.done, found.annotators, found.states("Anna"), found.states("")) == (
        2,
        {"Anna": 1, "": 1},
        "doo",
        "ods",
    )
    assert "Is this output good?" in ask(base, f"/run/judged/-/labels?sheet={sheet}").text
    post(base, {"sheet": sheet, "by": "Ben", "labels": said(rows, [0, 0, 0])})
    lines = [(r["human"], r.get("annotator"), r.get("at") == "then") for r in rows_of(folder, sheet)]
    assert lines[0] == (1, "Anna", True)
    assert [line[:2] for line in lines[1:]] == [(0, "Ben"), (0, None), (0, "Ben"), (None, None), (0, "Ben")]
    kofn("calibrate", path)


# --- the question


def test_the_question_can_be_given_and_edited_and_labels_keep_the_one_they_answer(base, folder):
    sheet = start(base, of="candidates", n=3, question="Is the reply polite?")
    page = f"/run/judged/-/labels?sheet={sheet}"
    assert "<h1" in ask(base, page).text
    assert ">Is the reply polite?</h1>" in ask(base, page).text
    labels = said(rows_of(folder, sheet), [1, 0, 1])
    post(base, {"sheet": sheet, "by": "Anna", "labels": labels[:2]})
    answer = form(base, {"sheet": sheet, "question": "Is the reply <polite> and short?", "at": 3})
    assert (answer.status, answer.headers["location"]) == (303, f"{page}&at=3")
    assert ">Is the reply &lt;polite&gt; and short?</h1>" in ask(base, page).text
    post(base, {"sheet": sheet, "by": "Anna", "labels": labels[1:]})
    assert [r.get("question") for r in rows_of(folder, sheet)] == ["Is the reply polite?", None, None]
    assert "1 label answers an earlier wording" in ask(base, f"{page}&confusion=1").text
    for wrong in ("", "x" * 501, " \n "):
        assert form(base, {"sheet": sheet, "question": wrong}).status == 422
    assert start(base, of="candidates", n=3) == sheet  # the same draw continues, whatever it asks
    assert start(base, of="candidates", n=3, question="Another?") != sheet


def test_without_a_question_a_sheet_asks_that_of_the_rubric(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "lenient_judge.py").write_text("def passes(prompt):\n    return 'Verdict: pass'\n")
    rows = judged_rows(6)
    for row in rows:
        row["outputs"] = [{"text": one["text"]} for one in row["outputs"]]
    (tmp_path / "o.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = ["--model", "fake:lenient_judge:passes"]
    kofn("judge", tmp_path / "o.jsonl", "--rubric", "correctness", *model, "--out", tmp_path / "runs" / "judged")
    with served(tmp_path / "runs") as base:
        assert "same final result as the reference?" in ask(base, "/run/judged/-/labels").text
        sheet = start(base, of="candidates", metric="", n=2)
        assert ">Does this output reach the same final" in ask(base, f"/run/judged/-/labels?sheet={sheet}").text
        sheet = start(base, of="sets", metric="", n=2)
        text = ask(base, f"/run/judged/-/labels?sheet={sheet}").text
        assert ">For at least one of these outputs: Does this output reach" in text
    kofn("calibrate", "--sample", 2, "--candidates", tmp_path / "runs" / "judged", "-o", tmp_path / "s.html")
    assert "Does this output reach the same final result" in (tmp_path / "s.html").read_text()


# --- what is sent


@pytest.mark.long(quick=4)
@pytest.mark.parametrize(
    ("change", "status", "why"),
    [
        ({"labels": []}, 422, "labels"),
        ({"labels": [{"row": 0, "id": "q0", "human": 2}]}, 422, "human"),
        ({"labels": [{"row": 0, "id": "q0", "human": True}]}, 422, "human"),
        ({"labels": [{"row": "0", "id": "q0", "human": 1}]}, 422, "row"),
        ({"labels": [{"row": -1, "id": "q0", "human": 1}]}, 422, "row"),
        ({"labels": [{"row": 99, "id": "q0", "human": 1}]}, 422, "row 100 has changed"),
        ({"labels": [{"row": 0, "id": "another", "human": 1}]}, 422, "row 1 has changed"),
        ({"labels": [{"row": 0, "id": "q0", "human": 1, "judge": 1}]}, 422, "judge"),
        ({"labels": [{"row": 0, "id": "q0"}]}, 422, "human"),
        ({"by": "x" * 81}, 422, "by"),
        ({"sheet": "../../etc/passwd"}, 404, "there is no sheet"),
        ({"sheet": "none"}, 404, "there is no sheet"),
        ({"more": 1}, 422, "more"),
    ],
    ids=str,
)
def test_what_is_not_a_label_is_refused_and_changes_nothing(base, folder, change, status, why):
    sheet = start(base, n=5)
    before = (folder / "judged" / f"labels-{sheet}.jsonl").read_bytes()
    good = {"sheet": sheet, "by": "", "labels": said(rows_of(folder, sheet), [1] * 5)[:1]}
    answer = post(base, {**good, **change})
    assert answer.status == status, answer.text
    assert why in answer.json()["error"]
    assert (folder / "judged" / f"labels-{sheet}.jsonl").read_bytes() == before
    assert post(base, good).status == 200  # the viewer goes on


def test_too_much_no_json_and_other_kinds_are_refused(base):
    sheet = start(base, n=5)
    assert post(base, b"{" + b" " * 300_000 + b"}").status == 413
    assert post(base, b"{not json").status == 422
    assert post(base, b"[" * 50_000).status == 422
    assert post(base, b'{"sheet": "\xff"}').status == 422
    assert post(base, {"sheet": sheet}, Content_Type="text/plain").status == 415
    assert post(base, {"sheet": sheet}, Origin="http://evil.example").status == 403
    label = {"row": 0, "id": "q0", "human": 1}
    assert post(base, {"sheet": sheet, "labels": [label]}, run="none").status == 404


def test_without_a_script_a_form_labels_and_goes_on(base, folder):
    sheet = start(base, of="candidates", n=3)
    row = rows_of(folder, sheet)[0]
    data = {"sheet": sheet, "row": 0, "id": row["id"], "index": row["index"], "human": "0"}
    answer = form(base, data)
    assert (answer.status, answer.headers["location"]) == (303, f"/run/judged/-/labels?sheet={sheet}&at=2")
    assert rows_of(folder, sheet)[0]["human"] == 0
    form(base, {**data, "human": ""})
    assert (rows_of(folder, sheet)[0]["human"], rows_of(folder, sheet)[0]["skipped"]) == (None, True)


# --- on disk


def test_two_viewers_and_many_tabs_lose_no_label(folder):
    with served(folder) as one, served(folder) as other:
        sheet = start(one, of="candidates", n=60)
        labels = said(rows_of(folder, sheet), [i % 2 for i in range(60)])
        failed = []

        def tab(base, own):
            failed.extend(label for label in own if post(base, {"sheet": sheet, "labels": [label]}).status != 200)

        tabs = [threading.Thread(target=tab, args=((one, other)[i % 2], labels[i::6])) for i in range(6)]
        for thread in tabs:
            thread.start()
        for thread in tabs:
            thread.join()
    assert failed == []
    assert [row["human"] for row in rows_of(folder, sheet)] == [i % 2 for i in range(60)]
    assert not [f.name for f in (folder / "judged").iterdir() if f.name.endswith(".tmp")]


def test_a_writer_waits_for_the_one_who_holds_the_lock(base, folder):
    sheet = start(base, n=3)
    row = rows_of(folder, sheet)[0]
    done = threading.Event()

    def write_label():
        save_labels(folder / "judged", sheet, [LabelUpdate(row=0, id=row["id"], human=1)], by="", now="now")
        done.set()

    with run_labels.lock_labels(folder / "judged"):
        thread = threading.Thread(target=write_label)
        thread.start()
        assert not done.wait(0.2)
    thread.join()
    assert rows_of(folder, sheet)[0]["human"] == 1


def test_a_full_disk_and_a_directory_that_cannot_be_written_are_told_at_once(base, folder, monkeypatch):
    sheet = start(base, n=5)
    good = {"sheet": sheet, "labels": said(rows_of(folder, sheet), [1] * 5)}

    def full(path, write):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(run_labels, "write_atomically", full)
        answer = post(base, good)
        assert answer.status == 503
        assert answer.json()["error"] == "cannot write to the run's directory: No space left on device"
    (folder / "judged" / run_labels.LOCK).unlink()
    (folder / "judged" / run_labels.LOCK).mkdir()  # cannot be opened to write, whoever runs this
    assert "cannot write to the run" in post(base, good).json()["error"]
    answer = form(base, {"of": "sets", "n": 5, "title": "new"})
    assert answer.status == 503
    assert "cannot write to the run" in answer.text
    (folder / "judged" / run_labels.LOCK).rmdir()
    assert post(base, good).status == 200


def test_links_and_files_of_others_are_left_alone(base, folder):
    sheet = start(base, n=3)
    outside = folder / "plain" / "labels-other.jsonl"
    outside.write_text((folder / "judged" / f"labels-{sheet}.jsonl").read_text())
    (folder / "judged" / "labels-link.jsonl").symlink_to(outside)
    (folder / "judged" / "labels-mine.jsonl").write_text('{"id": "q0", "human": 1}\n')
    (folder / "judged" / "labels-broken.jsonl").write_text('{"id": "q0", "human": 5, "sheet": {}}\n{')
    text = ask(base, "/run/judged/-/labels").text
    assert f"sheet={sheet}" in text
    assert not re.search("sheet=(link|mine|broken)", text)
    assert ask(base, "/run/judged/-/labels?sheet=link").status == 503
    assert ask(base, "/run/judged/-/labels?sheet=mine").status == 422
    assert "line 1: expected a row with id" in ask(base, "/run/judged/-/labels?sheet=broken").text
    assert ask(base, "/run/judged/-/labels?sheet=..%2F..%2Fplain%2Frun").status == 404
    labels = [{"row": 0, "id": rows_of(folder, sheet)[0]["id"], "human": 1}]
    assert post(base, {"sheet": "link", "labels": labels}).status == 503
    assert json.loads(outside.read_text().splitlines()[0])["human"] is None


@pytest.mark.parametrize(
    "hostile",
    [{"of": "picks", "selector": "os:getcwd"}, {"aggregate": "os:getcwd"}, {"n": "many"}, {"of": []}, {"metric": 1}],
    ids=str,
)
def test_a_hostile_sheet_names_nothing_that_is_looked_up(base, folder, hostile):
    sheet = start(base, n=3)
    rows = rows_of(folder, sheet)
    for row in rows:
        row["sheet"] |= hostile
        row["human"] = 1
    (folder / "judged" / "labels-evil.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for more in ("", "&confusion=1", "&at=2"):
        answer = ask(base, f"/run/judged/-/labels?sheet=evil{more}")
        assert answer.status == 422
        assert "kofn calibrate" not in answer.text
    assert ask(base, "/run/judged/-/labels").status == 200


def test_what_the_run_does_not_hold_any_more_is_said(base, folder):
    sheet = start(base, of="candidates", n=3)
    path = folder / "judged" / f"labels-{sheet}.jsonl"
    rows = rows_of(folder, sheet)
    rows[0]["id"], rows[1]["index"] = "gone", 99
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for at in (1, 2):
        assert "no longer in the run" in ask(base, f"/run/judged/-/labels?sheet={sheet}&at={at}").text
    assert read_sheet(folder / "judged", sheet).total == 3
    post(base, {"sheet": sheet, "labels": said(rows, [1, 1, 1])})
    assert "2 labels without a verdict" in ask(base, f"/run/judged/-/labels?sheet={sheet}&confusion=1").text


# --- in a browser


@pytest.fixture
def open_page(browser, base):
    """opened(sheet): its page; opened.base is the viewer's address."""
    with ExitStack() as kept:

        def visit(path, **more):
            found = open_in(browser, base, path, **more)
            kept.callback(found.context.close)
            return found

        yield visit


def wait_for_item(page, at):
    page.wait_for_function("at => document.querySelector('main')?.dataset.shown === String(at)", arg=at)


def press(page, key, at):
    """Press a key and wait for the thing that it leads to."""
    page.keyboard.press(key)
    wait_for_item(page, at)


@pytest.mark.browser
def test_by_keyboard_alone_everything_is_labelled_saved_and_taken_up_again(base, folder, open_page):
    page = open_page("/run/judged/-/labels")
    page.check("[value=candidates]")
    page.fill("[name=n]", "6")
    page.click("text=Start labelling")
    wait_for_item(page, 0)
    rows = rows_of(folder, "candidates-6-judge")
    assert f"reply {rows[0]['id'][1:]}.{rows[0]['index']}" in page.text("#thing")
    for at, key in enumerate("pfspu", 1):
        press(page, key, at if key != "u" else 3)
    assert page.text("#done") == "2 labelled"
    press(page, "f", 4)
    page.wait_for_selector("main[data-unsaved='0']")
    assert [r["human"] for r in rows_of(folder, "candidates-6-judge")] == [1, 0, None, 0, None, None]
    press(page, "ArrowLeft", 3)
    assert page.get_attribute("#fail", "aria-pressed") == "true"
    page.goto(f"{base}/run/judged/-/labels?sheet=candidates-6-judge")
    wait_for_item(page, 4)  # the first that is neither labelled nor skipped
    press(page, "p", 5)
    press(page, "p", 2)  # and what was skipped comes last
    page.keyboard.press("p")
    page.wait_for_selector("#done:has-text('all labelled')")
    page.wait_for_selector("main[data-unsaved='0']")
    assert [r["human"] for r in rows_of(folder, "candidates-6-judge")] == [1, 0, 1, 0, 1, 1]
    assert page.url.endswith("at=3")
    page.clean()


def test_undo_gives_back_what_was_there_before(base, folder, open_page):
    sheet = start(base, of="candidates", n=3)
    page = open_page(f"/run/judged/-/labels?sheet={sheet}")
    wait_for_item(page, 0)
    press(page, "p", 1)
    press(page, "ArrowLeft", 0)
    press(page, "f", 1)
    press(page, "u", 0)
    assert page.get_attribute("#pass", "aria-pressed") == "true"
    press(page, "u", 0)
    page.wait_for_selector("main[data-unsaved='0']")
    assert [r["human"] for r in rows_of(folder, sheet)] == [None, None, None]
    assert page.is_disabled("#undo")
    page.clean()


def test_a_label_that_cannot_be_saved_is_kept_in_the_browser_until_it_can(base, folder, open_page, monkeypatch):
    sheet = start(base, of="candidates", n=4)

    def full(path, write):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page = open_page(f"/run/judged/-/labels?sheet={sheet}")
    wait_for_item(page, 0)
    with monkeypatch.context() as patch:
        patch.setattr(run_labels, "write_atomically", full)
        press(page, "f", 1)
        press(page, "p", 2)
        page.wait_for_selector("#trouble:not([hidden])")
        page.wait_for_selector("#trouble:has-text('2 labels are not saved yet')")
        assert "No space left on device" in page.text("#trouble")
        assert [r["human"] for r in rows_of(folder, sheet)] == [None] * 4
        page.page.reload()  # and a page that is closed takes nothing with it
        wait_for_item(page, 2)
        page.wait_for_selector("#trouble:not([hidden])")
        press(page, "ArrowLeft", 1)
        press(page, "ArrowLeft", 0)
        assert page.get_attribute("#fail", "aria-pressed") == "true"
        assert page.text("#done") == "2 labelled"
    page.wait_for_selector("main[data-unsaved='0']")
    assert page.is_hidden("#trouble")
    assert [r["human"] for r in rows_of(folder, sheet)] == [0, 1, None, None]
    assert page.evaluate("Object.keys(localStorage)") == ["kofn-labeller"]


def test_a_label_that_is_refused_keeps_back_no_other(base, folder, open_page):
    sheet = start(base, of="candidates", n=3)
    page = open_page(f"/run/judged/-/labels?sheet={sheet}")
    wait_for_item(page, 0)
    rows = rows_of(folder, sheet)
    kept = {"row": 1, "id": rows[1]["id"], "index": rows[1]["index"], "human": 1, "skipped": False, "by": "Tester"}
    for row, one in ((0, {**kept, "row": 0, "id": "of another run"}), (1, kept)):
        page.evaluate(
            "([key, value]) => localStorage.setItem(key, JSON.stringify(value))",
            [f"kofn-label judged {sheet} {row}", one],
        )
    page.page.reload()
    page.wait_for_selector("main[data-unsaved='0']")
    assert [r["human"] for r in rows_of(folder, sheet)] == [None, 1, None]
    assert page.evaluate("Object.keys(localStorage)") == ["kofn-labeller"]


def test_a_name_is_asked_once_and_keeps_annotators_apart(base, folder, open_page):
    sheet = start(base, of="candidates", n=3)
    post(base, {"sheet": sheet, "by": "Anna", "labels": said(rows_of(folder, sheet), [1, 1, 1])[:1]})
    page = open_page(f"/run/judged/-/labels?sheet={sheet}", annotator=None)
    wait_for_item(page, 0)
    page.wait_for_selector("#name-dialog[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#name-dialog", state="hidden")
    page.keyboard.press("p")  # no label without a name: it is asked again
    page.wait_for_selector("#name-dialog[open]")
    page.keyboard.type("pf")  # typed, not labels
    page.fill("#by", "Ben")
    page.keyboard.press("Enter")
    page.wait_for_selector("#name-dialog", state="hidden")
    assert (page.text("#who"), page.text("#done")) == ("Ben", "0 labelled")
    assert page.get_attribute("#pass", "aria-pressed") == "false"  # nothing of what Anna said
    press(page, "f", 1)
    press(page, "f", 2)
    page.wait_for_selector("main[data-unsaved='0']")
    labels = [(r["human"], r.get("annotator")) for r in rows_of(folder, sheet)]
    assert labels == [(1, "Anna"), (0, "Ben"), (0, "Ben"), (None, None)]
    page.goto(f"{base}/run/judged/-/labels?sheet={sheet}")
    wait_for_item(page, 2)  # where Ben continues
    assert not page.is_visible("#name-dialog")
    page.click("#rename")
    page.fill("#by", "Anna")
    page.click("#named")
    wait_for_item(page, 2)
    page.wait_for_selector("#done:has-text('1 labelled')")
    page.clean()


def test_the_reference_comes_when_asked_for_and_is_in_the_address(base, open_page):
    sheet = start(base, of="sets", n=3)
    page = open_page(f"/run/judged/-/labels?sheet={sheet}", width=390)
    wait_for_item(page, 0)
    assert "SECRET" not in page.content()
    page.keyboard.press("r")
    page.wait_for_selector("text=SECRET-REFERENCE")
    assert page.url.endswith("at=1&reference=1")
    page.keyboard.press("r")
    page.wait_for_selector("text=SECRET-REFERENCE", state="detached")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.clean()


def test_hostile_text_stays_text(tmp_path, browser):
    write(tmp_path / "evil", judged_rows(4, EVIL.replace("\x00", "")), aggregate=["mean"])
    with served(tmp_path) as base:
        sheet = start(base, run="evil", of="sets", n=4)
        page = open_in(browser, base, f"/run/evil/-/labels?sheet={sheet}")
        wait_for_item(page, 0)
        assert page.evaluate("window.pwned") is None
        assert "onerror='window.pwned=2'" in page.text("#thing")
        assert "U+202E" in page.text("#thing")
        press(page, "p", 1)
        page.wait_for_selector("main[data-unsaved='0']")
        assert page.evaluate("window.pwned") is None
        assert rows_of(tmp_path, sheet, "evil")[0]["human"] == 1
        page.clean()
        page.context.close()


def test_programs_have_nothing_to_label(tmp_path):
    write(tmp_path / "grades", [{"id": i, "pass": i % 2 > 0} for i in range(4)], aggregate=["mean"])
    with served(tmp_path) as base:
        assert "no outputs to label" in ask(base, "/run/grades/-/labels").text
        assert "no outputs to label" in form(base, {"of": "sets", "n": 3}, "grades").text
    assert small_rows  # rows with outputs are what the other tests label
