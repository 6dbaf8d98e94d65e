"""report.html without a browser: nothing a file holds becomes markup, what is put in comes out, and it stays small."""

from __future__ import annotations

import base64
import gzip
import json
import re
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

import kofn
from kofn.core.escape import escape_json, escape_script, show_hidden
from kofn.core.format import format_significant
from kofn.render.case_payload import case_blocks
from kofn.render.charts import bin_values, short_labels
from kofn.render.page import (
    ByteBudget,
    PackedData,
    cut_texts,
    fit_chunks,
    html_document,
    pack,
    read_template,
    round_digits,
    shift_spans,
)
from kofn.render.report_html import report_data, report_page
from kofn.runs import AttributeResult, CorrectnessResults, Run, VerifierReport
from kofn.runs.case_reports import SCHEMA, nest_rows
from kofn.runs.report_builder import report_of
from kofn.scoring.configuration import ReportConfig

EXAMPLES = Path(__file__).parents[2] / "examples"
EVIL = (
    "</script><script>window.pwned=1</script><!-- ]]> <img src=x onerror='window.pwned=1'> \u202e\x00\x1b[31m\"'&amp;"
)
NAMES = st.text(alphabet=st.sampled_from("a<>&\"'/=-! \n\r\t\x00\x1b\u202e\u2067\u2028\ufeff日{}%`$\\"), max_size=40)
HIDDEN = "\x00\x07\x1b\x7f\x85\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202d\u202e\u2060\u2066\u2069\ufeff"


# --- runs


def run_of(rows, *, group=None, verdict=None, **options):
    """A run as `kofn score --out` makes it, not written."""
    result = kofn.score(rows, **options)
    evaluation, reports = report_of(
        result, ReportConfig(task=options.get("task", "task"), group=group, verdict=verdict)
    )
    return Run(name="run", evaluation=evaluation, reports=reports, manifest={"options": {}}, result=result)


def rows_of(n, size=4, text="It is {answer}.", **more):
    """n cases of which the first third fail with every candidate, the next with some."""
    out = []
    for i in range(n):
        wrong = size if i < n / 3 else size // 2 if i < 2 * n / 3 else 0
        answers = [str(i + 1000 + (1 if k < wrong else 0)) for k in range(size)]
        outputs = [
            {"text": text.format(answer=a, i=i, k=k), "cost": 0.001 * k, "seconds": 1.0 + k}
            for k, a in enumerate(answers)
        ]
        out.append({"id": f"c{i}", "input": f"question {i}", "reference": str(i + 1000), "outputs": outputs, **more})
    return out


def program_run(name="problem", group="g", case_id="c", expected="a\nb", **more):
    results = CorrectnessResults(problem_name=name, name="checkpoint_1", **more)
    wrong = AttributeResult(is_correct=False, expected=expected, actual={"x": [1]}, diff="-a\n+b", weight=0.5)
    right, unverified = AttributeResult(is_correct=True, expected=1, actual=1), AttributeResult(is_correct=None)
    reports = [
        VerifierReport(
            id=case_id,
            group=group,
            type="Core",
            duration=2.5,
            results={"out": wrong, "status": right},
            case={"input": expected, "files": {"a": None}},
        ),
        VerifierReport(id=f"{case_id}-2", group=group, type="Core", duration=0.5, results={"status": right}),
        VerifierReport(id=f"{case_id}-3", group=group, type="Core", results={"status": unverified}),
    ]
    results.add_group_report(group, "Core", 3.0, reports, weight=2)
    return Run(name="run", evaluation=results, reports=results.to_polars(), manifest={}, result=None)


# --- reading a page


class Reader(HTMLParser):
    """The tags of a page in order, its scripts, and what each island holds."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.scripts, self.islands, self.text = [], [], [], {}, []
        self.styles = []
        self.inside = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *pair) for pair in attrs]
        self.inside = dict(attrs) | {"tag": tag} if tag in ("script", "style") else None
        if tag == "script" and "type" not in self.inside:
            self.scripts.append("")

    def handle_endtag(self, _tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside is None:
            self.text.append(data)
        elif self.inside["tag"] == "script" and "type" not in self.inside:
            self.scripts[-1] += data
        elif self.inside["tag"] == "style":
            self.styles.append(data)
        elif self.inside.get("type") == "text/plain":
            self.islands[self.inside["id"]] = self.islands.get(self.inside["id"], "") + data


def unpacked(text):
    return gzip.decompress(base64.b64decode(text, validate=True))


def cases_of(islands):
    """(index, chunks) of a page's islands."""
    data = {name: json.loads(unpacked(text)) for name, text in islands.items()}
    return data.pop("case-index"), [data[f"texts-{i}"] for i in range(len(data))]


# --- nothing becomes markup


@pytest.mark.long
@given(NAMES, NAMES, NAMES, NAMES)
def test_the_tags_of_a_page_do_not_depend_on_what_a_program_run_is_called_or_says(task, group, case_id, expected):
    hostile = Reader(report_page(program_run(task, group, case_id, expected)))
    plain = Reader(report_page(program_run("problem", "g", "c", "a")))
    assert hostile.tags == plain.tags
    assert {(tag, name) for tag, name, _ in hostile.attributes} == {(tag, name) for tag, name, _ in plain.attributes}


@pytest.mark.long
@given(NAMES, NAMES, NAMES)
def test_the_tags_of_a_page_do_not_depend_on_what_candidates_and_tags_say(text, tag, case_id):
    def made(text, tag, case_id):
        outputs = [{"text": f"{text} 7", "reasoning": text, "error": None}, {"text": "8"}]
        rows = [
            {"id": f"{case_id}{i}", "input": text, "reference": "7", "kind": f"{tag}{i % 2}", "outputs": outputs}
            for i in range(4)
        ]
        tags = Reader(report_page(run_of(rows, group="kind", by="kind"))).tags
        return [tag for tag in tags if tag != "tspan"]  # the lines that a long label of a chart is broken into

    assert made(text, tag, case_id) == made("say", "k", "c")


@pytest.mark.parametrize("where", ["task", "group", "case_id", "expected"])
def test_a_hostile_text_is_never_in_the_page_as_it_is(where):
    html = report_page(program_run(**{"name" if where == "task" else where: EVIL}))
    assert "<script>window.pwned" not in html
    assert ("&lt;script&gt;window.pwned" in html) is (where in ("task", "group", "case_id"))  # the rest is in islands
    assert not set(html) & set(HIDDEN)
    assert "img" not in Reader(html).tags


def test_characters_that_hide_or_move_text_are_written_out_and_nothing_else_changes():
    for c in HIDDEN:
        assert show_hidden(f"a{c}b") == f"a⟦U+{ord(c):04X}⟧b"
    kept = "é 日本 שלום 👩‍💻 <b> &amp; می‌خواهم"
    assert show_hidden(kept) == kept


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-(2**53), 2**53),
        lambda x: st.lists(x) | st.dictionaries(st.text(), x),
    )
)
def test_json_in_a_page_reads_back_and_holds_no_markup(data):
    text = escape_json(data)
    assert json.loads(text) == data
    assert not set(text) & set("<>&")
    assert text.isascii()


def test_a_script_cannot_end_its_element():
    text = escape_script('a = "</script><!--";\r\nb')
    assert "</script" not in text
    assert "<!--" not in text
    assert "\r" not in text
    assert Reader(f"<script>{text}</script><p>").tags == ["script", "p"]


def test_only_the_scripts_of_the_page_may_run():
    read = Reader(report_page(run_of(rows_of(6))))
    policy = next(
        value for tag, name, value in read.attributes if tag == "meta" and name == "content" and "script-src" in value
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    hashes = {f"'sha256-{base64.b64encode(sha256(s.encode()).digest()).decode()}'" for s in read.scripts}
    assert set(rules["script-src"].split()) == hashes
    assert len(hashes) == 3  # the theme, what every page needs, and this page  # what every page needs, and the cases
    assert rules["style-src"] == f"'sha256-{base64.b64encode(sha256(read.styles[0].encode()).digest()).decode()}'"
    assert len(read.styles) == 1
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    assert not [a for a in read.attributes if a[1].startswith("on")]


def test_a_page_refers_to_nothing_outside_itself():
    for run in (run_of(rows_of(6)), program_run()):
        links = [
            value
            for _, name, value in Reader(report_page(run)).attributes
            if name in ("href", "src", "action", "srcset")
        ]
        assert all(link.startswith(("#", "data:,")) for link in links)


def test_the_report_of_sixty_cases_is_small():
    rows = [json.loads(line) for line in (EXAMPLES / "arithmetic.jsonl").read_text().splitlines()]
    assert len(rows) == 60
    html = report_page(run_of(rows, by="kind"))
    assert html.count("<figure") >= 7
    assert len(html.encode()) < 400_000


@given(st.text(max_size=30))
def test_the_title_of_a_page_is_text(title):
    assert (
        Reader(html_document(title=title, body=Markup(""))).tags
        == Reader(html_document(title="a", body=Markup(""))).tags
    )


# --- what is put in comes out


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.binary(max_size=200)))
def test_islands_decode_to_what_was_put_in(islands):
    read = Reader(html_document(title="t", body=Markup(""), blocks=islands)).islands
    assert {name: unpacked(text) for name, text in read.items()} == islands


@pytest.mark.long
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60), min_size=3, max_size=3),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
def test_every_text_of_a_run_is_in_its_page_unchanged(texts, question):
    rows = [
        {
            "id": f"c{i}",
            "input": question,
            "reference": "r",
            "outputs": [{"text": t, "reasoning": t[::-1]} for t in texts],
        }
        for i in range(2)
    ]
    index, (chunk,) = cases_of(Reader(report_page(run_of(rows, extract="text"))).islands)
    assert index["id"] == chunk["id"] == ["c0", "c1"]
    assert chunk["input"] == [question, question] if question else True
    assert chunk["candidates"]["text"] == texts * 2
    assert chunk["candidates"]["reasoning"] == [t[::-1] for t in texts] * 2
    for answer, text in zip(chunk["candidates"]["answer"], texts * 2, strict=True):
        assert answer in (True, None, text.strip()) or text.strip() == ""


def test_the_index_says_what_the_run_says():
    run = run_of(rows_of(9, tag="x"), verdict="majority")
    index, chunks = cases_of(case_blocks(run).blocks)
    assert index["n"] == index["total"] == 9
    assert index["passing"] == [0, 0, 0, 2, 2, 2, 4, 4, 4]
    assert index["strip"][3] == "0011"
    assert index["tied"] == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert index["verdict"] == [0] * 6 + [1] * 3  # of a tie the answer seen first wins, and it is wrong
    assert index["cost"][0] == pytest.approx(0.006)
    assert index["input"][4] == "question 4"
    assert chunks[0]["candidates"]["passes"] == ["0" * 12 + "0011" * 3 + "1" * 12]
    assert chunks[0]["ends"] == list(range(0, 40, 4))


def test_the_place_of_an_answer_is_in_code_points():
    rows = [
        {"id": "c", "reference": "1080", "outputs": ["𝟙👍 about 5, no: $1,080.00 in all", "1080 or 1080? Answer: 1080"]}
    ]
    _, (chunk,) = cases_of(case_blocks(run_of(rows, extract="number")).blocks)
    texts = chunk["candidates"]["text"]
    (a, b), (c, d) = chunk["candidates"]["span"]
    assert texts[0][a:b] == "$1,080.00"
    assert (texts[1][c:d], c) == ("1080", len("1080 or 1080? Answer: "))


def test_a_run_and_its_reports_must_be_of_the_same_cases():
    run = run_of(rows_of(6))
    mixed = Run(name="r", evaluation=run.evaluation, reports=run.reports.reverse(), manifest={}, result=run.result)
    with pytest.raises(kofn.errors.InputError, match="not of one run"):
        report_page(mixed)


# --- small enough


@given(st.text(max_size=60), st.integers(0, 70))
def test_a_cut_text_says_what_it_left_out_and_keeps_both_ends(text, length):
    text = text.encode("utf-8", "replace").decode()
    (found,) = cut_texts(pl.Series([text], dtype=pl.String), length)
    if len(text) <= length:
        assert found == text
    else:
        head, left, tail = found
        assert len(head) + len(tail) == length == len(text) - left
        assert text == head + text[len(head) : len(head) + left] + tail
        assert len(head) - len(tail) in (0, 1)


@given(st.text(alphabet="ab😀", min_size=1, max_size=40), st.data(), st.integers(0, 45))
def test_the_place_of_an_answer_moves_with_what_is_left_of_its_text(text, data, length):
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    ((a, b),) = shift_spans(np.array([[start, end]]), pl.Series([text]).str.len_chars(), length).tolist()
    (found,) = cut_texts(pl.Series([text]), length)
    kept = found if isinstance(found, str) else found[0] + found[2]
    if a >= 0:
        assert kept[a:b] == text[start:end]
    else:
        assert len(text) > length  # a place is lost only with the text around it


def test_no_place_stays_no_place():
    assert shift_spans(np.array([[-1, -1]]), pl.Series(["abcdef"]).str.len_chars(), 2).tolist() == [[-1, -1]]


def random_text(rng, n):
    return "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz0123456789"), n))


@pytest.mark.parametrize("uneven", [False, True])
def test_long_texts_are_cut_to_what_fits_and_the_page_says_so(uneven):
    rng = np.random.default_rng(1)
    sizes = [30 if uneven and i != 17 else 3000 if not uneven else 200_000 for i in range(60)]
    rows = [
        {"id": f"c{i}", "reference": "7", "outputs": [random_text(rng, n) + " is 7", "8"]} for i, n in enumerate(sizes)
    ]
    run = run_of(rows)
    room = 60_000
    found = case_blocks(run, ByteBudget(packed=room))
    total = sum(len(text) for text in found.blocks.values())
    assert 0.6 * room < total <= room
    assert found.n_shown == 60
    assert found.cut is not None
    _, chunks = cases_of(found.blocks)
    texts = [t for chunk in chunks for t in chunk["candidates"]["text"]]
    longest = texts[2 * 17]
    assert len(longest[0]) + len(longest[2]) == found.cut
    assert longest[1] == sizes[17] + len(" is 7") - found.cut
    assert any("are cut in the middle" in note and "candidates.parquet" in note for note in found.notes)
    assert "are cut in the middle" in report_page(run, ByteBudget(packed=room))


def test_a_page_that_cannot_hold_every_case_holds_failing_ones_and_says_so():
    run = run_of(rows_of(30))
    found = case_blocks(run, ByteBudget(cases=12))
    index, _ = cases_of(found.blocks)
    assert (found.n_shown, found.total) == (12, 30)
    assert index["row"] == list(range(12))  # the failing ones come first in this run
    assert index["total"] == 30
    assert any("12 of 30 cases" in note for note in found.notes)
    numbers = report_page(run, ByteBudget(cases=12))
    assert "30 cases x 4 candidates" in numbers


def test_where_even_cut_texts_do_not_fit_fewer_cases_are_shown():
    found = case_blocks(run_of(rows_of(400)), ByteBudget(packed=6_000))
    assert 0 < found.n_shown < 400
    assert sum(len(text) for text in found.blocks.values()) <= 6_000


def test_very_large_sets_are_shown_in_part():
    rows = [{"id": "c", "reference": "7", "outputs": ["7"] * 50}, {"id": "d", "reference": "7", "outputs": ["7"] * 3}]
    found = case_blocks(run_of(rows), ByteBudget(candidates_a_case=10))
    index, (chunk,) = cases_of(found.blocks)
    assert chunk["ends"] == [0, 10, 13]
    assert index["size"] == [50, 3]
    assert any("40 candidates" in note for note in found.notes)


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.integers(100, 5000))
def test_what_fit_returns_fits(sizes, room):
    def make(i, length):
        return PackedData("x" * (10 + (sizes[i] if length is None else min(sizes[i], length))))

    found = fit_chunks(np.array(sizes, dtype=float), make, max(sizes), room)
    if found is None:
        assert 10 * len(sizes) > 0.8 * room  # hardly anything but what cannot be cut
    else:
        assert sum(map(len, found[0])) <= room
        if found[1] is None:
            assert sum(sizes) + 10 * len(sizes) <= room


def test_the_chunks_of_a_run_hold_every_case_once():
    run = run_of(rows_of(450))
    index, chunks = cases_of(case_blocks(run).blocks)
    assert [id_ for chunk in chunks for id_ in chunk["id"]] == index["id"]
    assert index["chunks"] == [chunk["first"] for chunk in chunks]
    assert len(chunks) == 3


def many_reports(flags):
    """reports.parquet of as many cases as there are flags, made as columns."""
    n = len(flags)
    checked = {"attribute": "out", "expected": "1", "actual": "2", "diff": "", "weight": 1.0}
    attributes = pl.DataFrame({"is_correct": flags}).with_columns(**{k: pl.lit(v) for k, v in checked.items()})
    constant = {"problem": "p", "checkpoint": "c", "version": 1, "problem_version": 1, "group": "g", "type": "Core"}
    constant |= dict.fromkeys(("timestamp", "original_checkpoint", "original_group"))
    struct = [field.name for field in SCHEMA["results"].inner.fields]
    return pl.DataFrame(
        {
            "id": [f"case {i}" for i in range(n)],
            "duration": np.arange(n) / n,
            "results": nest_rows(attributes.select(struct), np.arange(n), n),
            "case": [[]] * n,
            **constant,
        }
    ).select(pl.col(name).cast(dtype) for name, dtype in SCHEMA.items())


def test_many_cases_keep_their_numbers_and_give_a_small_page():
    n = 300_000
    flags = np.arange(n) % 10 > 0
    reports = many_reports(flags)
    evaluation = CorrectnessResults(
        problem_name="p", name="c", pass_counts={"Core": int(flags.sum())}, total_counts={"Core": n}
    )
    html = report_page(Run(name="r", evaluation=evaluation, reports=reports, manifest={}, result=None))
    index, _ = cases_of(Reader(html).islands)
    assert len(html) < 15_000_000
    assert (index["n"], index["total"]) == (20_000, n)
    assert not any(index["verdict"])  # the failing ones are more than fit
    assert "270,000" in html
    assert "20,000 of 300,000 cases" in html


# --- every kind of run


def test_a_program_run_shows_its_groups_attributes_slowest_cases_and_failures_by_type():
    text = " ".join(Reader(report_page(program_run(name="csv tool", group="core features"))).text)
    for words in ("csv tool", "Not passed", "core-cases: 1 of 3 core cases pass", "core features", "Failures by type"):
        assert words in text
    for words in ("Attributes", "status", "Slowest cases", "2.5 s", "1 of 3 cases unverified"):
        assert words in text
    for words in ("Best of n", "Estimates", "Manifest"):
        assert words not in text


def test_the_report_of_a_program_keeps_expected_actual_and_diff():
    _, (chunk,) = cases_of(case_blocks(program_run(expected="x\ny")).blocks)
    assert chunk["attributes"][0][0] == ["out", False, 0.5, '"x\\ny"', '{"x":[1]}', "-a\n+b"]
    assert chunk["fields"][0] == [["input", '"x\\ny"'], ["files", '{"a":null}']]


def test_a_run_without_cases_and_a_failed_harness_are_incomplete():
    broken = CorrectnessResults(problem_name="p", name="c", infrastructure_failure="no docker <b>")
    run = Run(name="r", evaluation=broken, reports=broken.to_polars(), manifest={}, result=None)
    text = " ".join(Reader(report_page(run)).text)
    assert "Incomplete" in text
    assert "no docker <b>" in text
    assert "nothing was evaluated" in text


def test_nothing_graded_is_incomplete_and_not_a_failure():
    data = report_data(run_of([{"id": "a", "outputs": ["x", "y"]}, {"id": "b", "outputs": ["x", "x"]}]))
    assert data["verdict"]["kind"] == "incomplete"
    assert not data["sets"]


def test_candidates_that_were_not_graded_mark_the_run_incomplete():
    rows = [{"id": "a", "passes": [1, None, 0]}, {"id": "b", "passes": [1, 1, 1]}]
    assert report_data(run_of(rows))["verdict"]["gaps"] == ("1 of 6 candidates not graded",)
    index, _ = cases_of(case_blocks(run_of(rows)).blocks)
    assert index["strip"] == ["1-0", "111"]


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "a", "passes": [1]}],
        [{"id": "a", "passes": []}, {"id": "b", "passes": [1, 0, 0]}],
        [{"id": "a", "scores": [0.5, 7.0]}, {"id": "b", "scores": [-3.0]}],
        [{"id": "a", "outputs": [None, ""], "reference": "x"}, {"id": "b", "outputs": ["x"], "reference": "x"}],
        [{"id": str(i), "passes": [i % 2] * (i + 1)} for i in range(60)],
    ],
    ids=["one candidate", "an empty set", "scores of any size", "no output", "sets of many sizes"],
)
def test_a_page_can_be_made_of(rows):
    run = run_of(rows)
    assert cases_of(Reader(report_page(run)).islands)[0]["n"] == len(rows)


def test_the_specifications_of_real_runs_are_valid_vega_lite(sets_folder):
    import vl_convert

    for name in ("qwen_math100x8", "tot_writing_gpt4_io_100x10", "tau_airline_gpt4o_50x4"):
        data = report_data(run_of(sets_folder / f"{name}.jsonl", by="dataset"))
        drawn = [chart for part in ("estimates", "sets", "segments", "spending") for chart in data[part]]
        assert len({chart.id for chart in drawn}) == len(drawn) >= 3
        for chart in drawn:
            compiled = vl_convert.vegalite_to_vega({**chart.spec(), "width": 300})
            assert compiled["marks"]
            assert chart.label
            assert all(len(row) == len(chart.header) for row in chart.rows)


def test_the_best_of_n_curve_shows_independence_beside_what_was_observed():
    data = report_data(run_of(rows_of(12)))
    curve = next(chart for chart in data["sets"] if chart.id == "curve")
    assert "if tries were independent" in [name for name, *_ in curve.keys]
    assert curve.rows[0][0] == "1"
    assert curve.rows[0][1] == "0.500"
    assert curve.rows[-1][-1] == "0.938"  # 1 - (1 - 0.5)^4


def test_how_many_of_n_pass_counts_every_case_once():
    chart = next(c for c in report_data(run_of(rows_of(12)))["sets"] if c.id == "passing")
    assert [row[:2] for row in chart.rows] == [("0", "4"), ("1", "0"), ("2", "4"), ("3", "0"), ("4", "4")]


def test_the_strength_of_the_vote_counts_ties_where_they_belong():
    chart = next(c for c in report_data(run_of(rows_of(12)))["sets"] if c.id == "votes")
    assert [row[1:3] for row in chart.rows] == [("0", "0"), ("0", "4"), ("0", "0"), ("4", "4")]


def test_long_names_are_cut_and_stay_different():
    names = ["x" * 100, "x" * 101, "y"]
    labels = short_labels(names)
    assert len(set(labels.values())) == 3
    assert max(map(len, labels.values())) < 70


def test_bins_hold_every_value_but_the_far_tail():
    values = np.concatenate([np.linspace(0, 1, 999), [1000.0]])
    found = bin_values(values)
    assert sum(found.counts) + found.beyond == 1000
    assert found.beyond >= 1
    assert bin_values(np.array([2.0, 2.0, np.nan])) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_to_five_digits_is_near_and_never_longer(value):
    (rounded,) = round_digits(np.array([value])).tolist()
    assert rounded == pytest.approx(value, rel=1e-4, abs=1e-300)
    assert format_significant(0.0000188, 3) == "0.0000188"


# --- packing


def test_packing_the_same_twice_gives_the_same():
    assert pack(b"abc") == pack(b"abc")


def test_dark_as_the_system_says_and_dark_as_chosen_are_the_same_colours():
    css = read_template("page.css")
    by_system, chosen = (
        re.search(re.escape(start) + r"[^{}]*?((?:\s*--[\w-]+:[^;]+;)+)", css)[1].split()
        for start in (':root:not([data-theme="light"]) {', ':root[data-theme="dark"] {')
    )
    assert by_system == chosen
    assert "--paper:" in by_system
