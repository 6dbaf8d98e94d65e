"""kofn calibrate: labels in every form, corrected rates by case and candidate, sheets that come back as labels."""

from __future__ import annotations

import csv
import json
from collections import Counter

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from kofn.cli.judge_verbs import calibrate_command as command
from kofn.cli.score_verb import score_command as score
from kofn.errors import InputError, KofnError
from kofn.judge.label_sheet import csv_text, draw_by_verdict
from kofn.judge.labels import read_labels
from kofn.stats import cohen_kappa, estimate, fleiss_kappa, judge_rates, rogan_gladen

KEYS = {"n_labels", "confusion", "sensitivity", "specificity", "agreement", "kappa", "raw", "corrected", "warnings",
        "segments"}  # fmt: skip


def calibrate(*arguments):
    """What the verb prints; errors come out as they are."""
    done = CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(done.exception, KofnError):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def calibrate_json(*arguments):
    def refuse(word):
        raise AssertionError(f"{word} in JSON")

    return json.loads(calibrate(*arguments, "--json"), parse_constant=refuse)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def made(n, seed, rate=0.6, s=0.85, t=0.8, prefix="a"):
    rng = np.random.default_rng(seed)
    human = rng.random(n) < rate
    judge = np.where(human, rng.random(n) < s, rng.random(n) >= t)
    return [
        {"id": f"{prefix}{i}", "human": int(h), "judge": int(j), "kind": "xy"[i % 2]}
        for i, (h, j) in enumerate(zip(human, judge, strict=True))
    ]


def candidates(n, seed, size=4):
    """Cases with several candidates: outputs with a label of the judge, and what people say of each."""
    rng = np.random.default_rng(seed)
    human = rng.random((n, size)) < rng.beta(1, 1, size=n)[:, None]
    judge = np.where(human, rng.random((n, size)) < 0.9, rng.random((n, size)) >= 0.8)
    rows = [
        {"id": f"c{i}", "topic": "ab"[i % 2], "input": f"question {i}",
         "outputs": [{"text": f"reply {i}.{k}", "pass": bool(j), "reward": float(rng.random())}
                     for k, j in enumerate(js)]}
        for i, js in enumerate(judge)
    ]  # fmt: skip
    return rows, human, judge


@pytest.fixture
def run(tmp_path):
    rows, human, judge = candidates(80, 3)
    file = write(tmp_path / "outputs.jsonl", rows)
    done = CliRunner().invoke(score, [str(file), "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    return tmp_path / "run", human, judge


# labels


@pytest.mark.parametrize("form", ["jsonl", "csv", "tsv", "parquet"])
def test_every_form_of_a_file_gives_the_same_numbers(tmp_path, form):
    rows = made(90, 0)
    expected = calibrate_json(write(tmp_path / "wanted.jsonl", rows))
    path = tmp_path / f"labels.{form}"
    frame = pl.DataFrame(rows)
    if form == "parquet":
        frame.write_parquet(path)
    elif form == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.write_csv(path, separator="\t" if form == "tsv" else ",")
    assert calibrate_json(path) == expected
    assert expected.keys() >= KEYS
    assert expected["raw"] is None
    assert expected["corrected"] is None


@pytest.mark.parametrize(("yes", "no"), [(1, 0), (True, False), ("pass", "fail"), ("Yes", "no"), ("1", "0.0")])
def test_verdicts_may_be_written_in_many_ways(tmp_path, yes, no):
    words = {1: yes, 0: no}
    rows = [{**r, "human": words[r["human"]], "judge": words[r["judge"]]} for r in made(60, 1)]
    want = judge_rates([r["human"] for r in made(60, 1)], [r["judge"] for r in made(60, 1)])
    found = calibrate_json(write(tmp_path / "l.jsonl", rows))
    assert found["confusion"] == {k: getattr(want.confusion, k) for k in ("tp", "fp", "fn", "tn")}
    assert found["sensitivity"]["low"] == want.sensitivity.low
    assert found["kappa"]["point"] == pytest.approx(want.kappa.point)


def test_what_is_not_labelled_or_not_graded_is_counted_and_never_0(tmp_path):
    rows = made(100, 2)
    rows[0]["human"], rows[1]["human"] = None, ""
    rows[2]["judge"], rows[3]["judge"], rows[4]["judge"] = "maybe", None, 7
    found = calibrate_json(write(tmp_path / "l.jsonl", rows))
    assert (found["n_rows"], found["n_labels"], found["n_unlabelled"], found["n_not_graded"]) == (100, 95, 2, 3)
    assert sum(found["confusion"].values()) == 95
    assert any("3 labels without a verdict" in w for w in found["warnings"])


def test_few_labels_of_a_class_are_warned_of(tmp_path):
    found = calibrate_json(write(tmp_path / "l.jsonl", made(40, 3, rate=0.8)))
    assert any("labels that people fail: below 30" in w for w in found["warnings"])
    assert not calibrate_json(write(tmp_path / "l.jsonl", made(200, 3)))["warnings"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": 1, "judge": 1}], "no column human"),
        ([{"human": 1, "judge": 1}], "no column id"),
        ([{"id": 1, "human": 1}], "no column judge"),
        ([{"id": 1, "human": "good?", "judge": 1}], "line 1: human 'good.': expected 1 or 0"),
        ([{"id": None, "human": 1, "judge": 1}], "line 1: no id"),
        ([{"id": 1, "human": 1, "judge": 1, "index": -1}], "line 1: index -1"),
        ([{"id": 1, "human": 1, "judge": 1, "index": 0}] * 2, "line 2: duplicate row for candidate 0 of case '1'"),
        ([{"id": 1, "human": 1, "judge": 1, "weight": 0}], "line 1: weight 0: expected a positive"),
        ([[1, 2]], "expected a JSON object"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        calibrate(write(tmp_path / "l.jsonl", rows))


def test_files_that_are_none_are_refused(tmp_path):
    with pytest.raises(InputError, match="o such file"):
        calibrate(tmp_path / "nowhere.csv")
    (tmp_path / "l.csv").write_text("id,human,judge\n1,1,1,1\n")
    with pytest.raises(InputError, match="more cells than the header"):
        calibrate(tmp_path / "l.csv")
    (tmp_path / "l.jsonl").write_text('{"id": 1\n')
    with pytest.raises(InputError, match="line 1: not JSON"):
        calibrate(tmp_path / "l.jsonl")


def test_several_labels_of_an_id_are_a_cluster(tmp_path):
    rows = [{**r, "id": f"q{i // 3}"} for i, r in enumerate(made(90, 4))]
    found = calibrate_json(write(tmp_path / "l.jsonl", rows))
    assert found["of"] == "candidate"
    assert found["sensitivity"]["method"] != "wilson"


def test_segments_are_those_of_the_column_segment_or_of_the_field_asked_for(tmp_path):
    rows = made(120, 5)
    path = write(tmp_path / "l.jsonl", rows)
    assert calibrate_json(path)["segments"] == []
    by = calibrate_json(path, "--by", "kind")["segments"]
    assert [s["segment"] for s in by] == ["kind=x", "kind=y"]
    assert sum(s["n_labels"] for s in by) == 120
    own = calibrate_json(write(tmp_path / "s.jsonl", [{**r, "segment": r["kind"]} for r in rows]))["segments"]
    assert [s["sensitivity"] for s in own] == [s["sensitivity"] for s in by]
    with pytest.raises(InputError, match="unknown field 'knd': did you mean kind"):
        calibrate(path, "--by", "knd")


# the corrected rate


def test_lines_of_a_judge_are_corrected_by_labels_of_other_cases(tmp_path):
    labels, judged = made(150, 6), made(400, 7, prefix="b")
    lines = [{"id": r["id"], "judge": r["judge"], "kind": r["kind"]} for r in judged]
    lines[0]["judge"] = "?"
    found = calibrate_json(
        write(tmp_path / "l.jsonl", labels), "--apply", write(tmp_path / "j.jsonl", lines), "--by", "kind"
    )
    q = np.mean([r["judge"] for r in judged[1:]])
    want = rogan_gladen(q, found["sensitivity"]["point"], found["specificity"]["point"])
    assert found["raw"]["point"] == pytest.approx(q)
    assert found["corrected"]["point"] == pytest.approx(want.point)
    assert found["corrected"].keys() >= {"point", "low", "high", "method", "clipped", "unclipped"}
    assert found["corrected"]["low"] < 0.6 < found["corrected"]["high"]
    assert found["n_judged_not_graded"] == 1
    assert [s["n_judged"] for s in found["segments"]] == [199, 200]
    assert all(s["corrected"]["point"] is not None for s in found["segments"])


@pytest.mark.parametrize("method", ["bootstrap", "lang_reiczigel"])
def test_the_method_can_be_named(tmp_path, method):
    labels, judged = write(tmp_path / "l.jsonl", made(150, 6)), write(tmp_path / "j.jsonl", made(400, 7, prefix="b"))
    found = calibrate_json(labels, "--apply", judged, "--method", method)
    assert found["corrected"]["method"] == method
    with pytest.raises(InputError, match="did you mean bootstrap"):
        calibrate(labels, "--apply", judged, "--method", "bootstrapp")


def test_with_every_case_labelled_the_corrected_rate_is_that_of_people(tmp_path):
    rows = made(120, 8)
    lines = [{"id": r["id"], "judge": r["judge"]} for r in rows]
    found = calibrate_json(write(tmp_path / "l.jsonl", rows), "--apply", write(tmp_path / "j.jsonl", lines))
    want = estimate([r["human"] for r in rows])
    assert found["corrected"]["design"] == "all labelled"
    assert [found["corrected"][k] for k in ("point", "low", "high")] == pytest.approx([want.point, want.low, want.high])


def test_a_judge_without_information_is_refused(tmp_path):
    labels = write(tmp_path / "l.jsonl", [{"id": i, "human": i % 2, "judge": i // 2 % 2} for i in range(40)])
    judged = write(tmp_path / "j.jsonl", [{"id": f"x{i}", "judge": i % 2} for i in range(40)])
    with pytest.raises(InputError, match="carries no information") as problem:
        calibrate(labels, "--apply", judged)
    assert problem.value.exit_code == 2
    assert calibrate_json(labels)["corrected"] is None  # its errors can still be looked at


def test_known_rates_are_taken_as_exact_with_or_without_labels(tmp_path, oracles):
    entry = oracles["rogan_gladen.known_se_sp"]
    judged = write(tmp_path / "j.jsonl", [{"id": i, "judge": int(i < 20)} for i in range(120)])
    for labels in ([], [write(tmp_path / "l.jsonl", made(60, 1))]):
        found = calibrate_json(*labels, "--apply", judged, "--known-rates", "0.9,0.99")
        ends = [found["corrected"]["low"], found["corrected"]["high"]]
        assert ends == pytest.approx(entry["expected"]["wilson_here"])
        assert any("too narrow" in w for w in found["warnings"])


def test_a_clipped_rate_is_marked_everywhere(tmp_path):
    labels = write(tmp_path / "l.jsonl", made(200, 6))
    judged = write(tmp_path / "j.jsonl", [{"id": f"x{i}", "judge": int(i % 7 == 0)} for i in range(300)])
    found = calibrate_json(labels, "--apply", judged)
    assert found["corrected"]["clipped"]
    assert found["corrected"]["point"] == 0.0 > found["corrected"]["unclipped"]
    assert any("clipped" in w or "does not fit" in w for w in found["warnings"])
    assert "(clipped)" in calibrate(labels, "--apply", judged)


def test_verdicts_of_the_run_win_over_those_in_the_labels(tmp_path):
    rows = made(80, 9)
    lines = [{"id": r["id"], "judge": r["judge"]} for r in rows] + [{"id": f"z{i}", "judge": i % 2} for i in range(50)]
    rows[0]["judge"] = 1 - rows[0]["judge"]
    found = calibrate_json(write(tmp_path / "l.jsonl", rows), "--apply", write(tmp_path / "j.jsonl", lines))
    assert any("differs" in w and "on 1 label:" in w for w in found["warnings"])
    assert found["corrected"]["design"] == "inside"


def test_more_labels_are_asked_for_or_it_says_why_not(tmp_path):
    labels = write(tmp_path / "l.jsonl", made(60, 10))
    many = write(tmp_path / "many.jsonl", made(5000, 11, prefix="b"))
    few = write(tmp_path / "few.jsonl", made(40, 11, prefix="b"))
    assert calibrate_json(labels, "--apply", many)["labels_to_halve"]["more"] > 60
    assert calibrate_json(labels, "--apply", few)["labels_to_halve"]["more"] is None
    assert "more labels" in calibrate(labels, "--apply", many)


# runs


def test_labels_of_candidates_correct_their_rate_and_bound_that_of_sets(run, tmp_path):
    path, human, judge = run
    labels = [{"id": f"c{i}", "index": k, "human": int(human[i, k])} for i in range(40) for k in range(4)]
    found = calibrate_json(write(tmp_path / "l.jsonl", labels), "--apply", path, "--by", "topic")
    assert found["of"] == "candidate"
    assert found["n_labels"] == 160
    assert found["raw"]["point"] == pytest.approx(judge.mean())
    assert found["corrected"]["design"] == "inside"
    assert found["corrected"]["low"] < human.mean() < found["corrected"]["high"]
    assert found["corrected_sets"]["assumption"] == "assumes independent candidates, upper bound"
    assert found["corrected_sets"]["point"] > human.any(axis=1).mean()
    assert found["raw_sets"]["point"] == pytest.approx(judge.any(axis=1).mean())
    assert any("upper bound" in w for w in found["warnings"])
    assert {s["segment"] for s in found["segments"]} == {"topic=a", "topic=b"}


def test_labels_of_sets_correct_the_rate_of_sets(run, tmp_path):
    path, human, judge = run
    labels = [{"id": f"c{i}", "human": int(human[i].all())} for i in range(60)]
    found = calibrate_json(
        write(tmp_path / "l.jsonl", labels), "--apply", path, "--aggregate", "all_pass", "--metric", "pass"
    )
    assert found["of"] == "set"
    assert found["raw"]["point"] == pytest.approx(judge.all(axis=1).mean())
    assert found["corrected"]["low"] < human.all(axis=1).mean() < found["corrected"]["high"]
    assert found["corrected_sets"] is None


def test_a_file_of_outputs_is_as_good_as_its_run(run, tmp_path):
    path, human, _ = run
    labels = write(tmp_path / "l.jsonl", [{"id": f"c{i}", "human": int(human[i].any())} for i in range(60)])
    of_run, of_file = (calibrate_json(labels, "--apply", what) for what in (path, tmp_path / "outputs.jsonl"))
    assert of_file["corrected"] == of_run["corrected"]
    assert of_file["raw"] == of_run["raw"]


def test_what_people_said_in_the_judged_file_does_not_matter(tmp_path):
    labels = write(tmp_path / "l.jsonl", made(100, 6))
    lines = [{"id": f"b{i}", "judge": i % 2, "human": "to do"} for i in range(50)]
    found = calibrate_json(labels, "--apply", write(tmp_path / "j.jsonl", lines))
    assert found["raw"]["point"] == 0.5


def test_a_sheet_that_nobody_filled_in_has_no_rates_and_corrects_nothing(tmp_path):
    labels = write(tmp_path / "l.jsonl", [{"id": i, "judge": i % 2, "human": ""} for i in range(9)])
    found = calibrate_json(labels)
    assert (found["n_labels"], found["n_unlabelled"], found["agreement"]["point"]) == (0, 9, None)
    assert "9 not labelled yet" in calibrate(labels)
    with pytest.raises(InputError, match="no row is labelled yet"):
        calibrate(labels, "--apply", write(tmp_path / "j.jsonl", [{"id": "x", "judge": 1}]))


def test_lines_of_a_judge_can_be_sampled_too(tmp_path):
    lines = write(tmp_path / "j.jsonl", [{"id": f"b{i}", "judge": i % 2, "kind": "k"} for i in range(50)])
    calibrate("--sample", "10", lines, "-o", tmp_path / "s.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert {tuple(r) for r in rows} == {("id", "kind", "judge", "weight", "human")}
    with pytest.raises(InputError, match="no candidates to draw from"):
        calibrate("--sample", "10", "--candidates", lines, "-o", tmp_path / "other.jsonl")
    with pytest.raises(InputError, match="at least 1"):
        calibrate("--sample", "0", lines, "-o", tmp_path / "other.jsonl")


def test_wrong_names_of_a_run_are_refused(run, tmp_path):
    path, _, _ = run
    labels = write(tmp_path / "l.jsonl", [{"id": "c0", "human": 1}])
    with pytest.raises(InputError, match="unknown metric"):
        calibrate(labels, "--apply", path, "--metric", "juge")
    with pytest.raises(InputError, match="unknown aggregator"):
        calibrate(labels, "--apply", path, "--aggregate", "any_pas")
    with pytest.raises(InputError, match="other numbers than 0 and 1"):
        calibrate(labels, "--apply", path, "--aggregate", "mean")
    with pytest.raises(InputError, match="no column judge"):
        calibrate(labels)


def test_options_that_do_not_go_together_are_refused(run, tmp_path):
    path, _, _ = run
    labels = write(tmp_path / "l.jsonl", made(30, 0))
    for arguments, message in (
        ([labels, "--known-rates", "0.9,0.9"], "give --apply"),
        ([labels, "--apply", path, "--known-rates", "2,0.9"], "between 0 and 1"),
        ([labels, "--apply", path, "--known-rates", "0.9"], "expected sensitivity,specificity"),
        ([labels, "--metric", "pass"], "give --apply RUN too"),
        ([path, "--sample", "5"], "-o FILE"),
        ([path, "--sample", "5", "-o", "x.csv", "--json"], "--json does not apply to --sample"),
        ([path, "--sample", "5", "-o", "x.csv", "--by-selector", "reward"], "add --selected"),
        ([], "give LABELS"),
    ):
        done = CliRunner().invoke(command, [str(a) for a in arguments])
        assert done.exit_code == 2
        assert message in done.output


# scores


def scored(n, seed, prefix):
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, n)
    judge = np.clip(human + rng.integers(-1, 3, n), 1, 5)
    return [
        {"id": f"{prefix}{i}", "human": int(h), "judge": int(j)}
        for i, (h, j) in enumerate(zip(human, judge, strict=True))
    ]


def test_scores_are_corrected_by_ppi_and_a_threshold_makes_them_verdicts(tmp_path):
    labels, others = scored(150, 1, "a"), scored(600, 2, "b")
    paths = write(tmp_path / "l.jsonl", labels), "--apply", write(tmp_path / "j.jsonl", others)
    found = calibrate_json(*paths)
    assert found["confusion"] is None
    assert found["corrected"]["method"] == "ppi++"
    truth = np.mean([r["human"] for r in others])
    assert found["raw"]["point"] > truth + 0.2
    assert found["corrected"]["low"] < truth < found["corrected"]["high"]
    assert found["scores"]["correlation"] > 0.5
    cut = calibrate_json(*paths, "--threshold", "4")
    assert cut["confusion"]["tp"] == sum(r["human"] >= 4 and r["judge"] >= 4 for r in labels)
    assert cut["raw"]["point"] == pytest.approx(np.mean([r["judge"] >= 4 for r in others]))


# sheets


def test_a_sheet_is_drawn_by_verdict_seeded_and_comes_back_as_labels(run, tmp_path):
    path, human, _ = run
    sheet = tmp_path / "sheet.csv"
    calibrate(path, "--sample", "40", "--candidates", "-o", sheet, "--seed", "5")
    first = sheet.read_text()
    calibrate(path, "--sample", "40", "--candidates", "-o", tmp_path / "again.csv", "--seed", "5")
    assert (tmp_path / "again.csv").read_text() == first
    with sheet.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {"id", "index", "input", "output", "judge", "weight", "human"} <= rows[0].keys()
    assert Counter(r["judge"] for r in rows) == {"1": 20, "0": 20}
    assert sum(float(r["weight"]) for r in rows) == pytest.approx(320, abs=0.01)
    assert all(r["human"] == "" for r in rows)
    assert calibrate_json(sheet)["n_unlabelled"] == 40
    for r in rows:
        assert r["output"] == f"reply {r['id'][1:]}.{r['index']}"
        r["human"] = str(int(human[int(r["id"][1:]), int(r["index"])]))
    with sheet.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    found = calibrate_json(sheet, "--apply", path)
    assert found["n_labels"] == 40
    assert found["corrected"]["low"] < human.mean() < found["corrected"]["high"]


def test_weights_of_a_sheet_may_be_left_out_where_its_labels_are_of_the_judged_run(run, tmp_path):
    """They follow from how many of each verdict there are: here four times as many failures are labelled as passes."""
    path, human, judge = run
    rng = np.random.default_rng(0)
    passed, failed = (rng.permutation(np.argwhere(judge == v))[:n] for v, n in ((1, 20), (0, 80)))
    share = {1: judge.sum() / 20, 0: (~judge).sum() / 80}
    labels = [
        {"id": f"c{i}", "index": int(k), "human": int(human[i, k]), "weight": float(share[int(judge[i, k])])}
        for i, k in (*passed, *failed)
    ]
    with_weights = calibrate_json(write(tmp_path / "w.jsonl", labels), "--apply", path)
    without = calibrate_json(write(tmp_path / "l.jsonl", [{**r, "weight": None} for r in labels]), "--apply", path)
    assert without["corrected"]["point"] == pytest.approx(with_weights["corrected"]["point"])
    assert without["corrected_sets"]["point"] == pytest.approx(with_weights["corrected_sets"]["point"])
    assert without["corrected"]["sensitivity"] == pytest.approx(with_weights["sensitivity"]["point"])
    assert without["sensitivity"]["point"] == pytest.approx(with_weights["sensitivity"]["point"])
    confusion = without["confusion"]  # of the labels as they are: plain s is off
    plain = confusion["tp"] / (confusion["tp"] + confusion["fn"])
    assert abs(plain - with_weights["sensitivity"]["point"]) > 0.1
    assert "the labels of each verdict stand for" in calibrate(tmp_path / "l.jsonl", "--apply", path)


def test_sheets_of_sets_show_all_outputs_and_those_of_picks_one(run, tmp_path):
    path, _, judge = run
    calibrate(path, "--sample", "10", "-o", tmp_path / "sets.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "sets.jsonl").read_text().splitlines()]
    assert all(len(r["outputs"]) == 4 and "index" not in r and r["human"] is None for r in rows)
    assert all(r["judge"] == judge[int(r["id"][1:])].any() for r in rows)
    calibrate(path, "--sample", "10", "--selected", "-o", tmp_path / "picks.jsonl")
    picks = [json.loads(line) for line in (tmp_path / "picks.jsonl").read_text().splitlines()]
    assert all(r["judge"] == judge[int(r["id"][1:]), r["picked"]] for r in picks)
    outputs = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    for r in picks:
        rewards = [o["reward"] for o in outputs[int(r["id"][1:])]["outputs"]]
        assert r["picked"] == int(np.argmax(rewards))
    with pytest.raises(InputError, match="unknown selector"):
        calibrate(path, "--sample", "10", "--selected", "--by-selector", "rewrd", "-o", tmp_path / "p.jsonl")
    with pytest.raises(InputError, match=r"ends in \.csv"):
        calibrate(path, "--sample", "10", "-o", tmp_path / "sheet.txt")


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "'=1", "plain"])
def test_no_cell_is_a_formula_and_ids_come_back_as_they_were(tmp_path, text):
    row = {"id": text, "output": text, "judge": 1, "human": 1}
    sheet = tmp_path / "s.csv"
    sheet.write_text(csv_text([row]), newline="")
    with sheet.open(newline="") as file:
        cells = next(csv.DictReader(file))
    assert not cells["id"].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert read_labels(sheet).ids == (text,)


def test_asking_for_more_than_there_is_draws_all_with_weight_1():
    places, weights = draw_by_verdict(np.array([1, 0, 1, np.nan, 0.0]), 99, seed=0)
    assert sorted(places) == [0, 1, 2, 4]
    assert weights.tolist() == [1.0] * 4
    with pytest.raises(InputError, match="graded nothing"):
        draw_by_verdict(np.array([np.nan]), 1, seed=0)


def test_text_from_a_file_cannot_move_the_cursor(tmp_path):
    rows = [{**r, "segment": "\x1b[31mred"} for r in made(60, 1)]
    printed = calibrate(write(tmp_path / "l.jsonl", rows))
    assert "\x1b" not in printed
    assert "\\x1b[31mred" in printed


# several annotators


def by_annotator(rows, **labels):
    return [
        {**row, "annotator": name, "human": given[i]}
        for i, row in enumerate(rows)
        for name, given in labels.items()
        if given[i] is not None
    ]


FOUR = [{"id": f"q{i}", "index": 0, "judge": i % 2, "weight": 2.0, "cluster": f"c{i // 2}"} for i in range(4)]


def test_the_majority_of_annotators_is_the_label_and_a_tie_is_left_out(tmp_path):
    rows = by_annotator(FOUR, Ann=[1, 1, 0, 1], Ben=[1, 0, 0, 0], Cleo=[0, 0, None, None])
    found = read_labels(write(tmp_path / "l.jsonl", rows))
    assert found.ids == ("q0", "q1", "q2", "q3")
    assert np.isnan(found.human[3])
    assert found.human[:3].tolist() == [1, 0, 0]
    assert found.indices == (0, 0, 0, 0)
    assert found.weights.tolist() == [2.0] * 4
    assert found.judge.tolist() == [0, 1, 0, 1]
    assert "annotator" not in found.fields
    said = calibrate_json(tmp_path / "l.jsonl")
    assert (said["n_rows"], said["n_labels"], said["n_unlabelled"]) == (4, 3, 0)
    assert said["annotators"]["n_tied"] == 1
    assert said["annotators"]["n_labels"] == {"Ann": 4, "Ben": 4, "Cleo": 2}
    assert "annotators tied on 1 item: left out" in said["warnings"]
    assert "3 labelled candidates by 3 annotators, 1 tied" in calibrate(tmp_path / "l.jsonl")


def test_two_annotators_have_cohens_kappa_and_three_that_of_fleiss_with_every_pair(tmp_path):
    rng = np.random.default_rng(5)
    truth = rng.random(80) < 0.6
    given = {name: (truth ^ (rng.random(80) < 0.15)).astype(int).tolist() for name in ("Ann", "Ben", "Cleo")}
    rows = [{"id": f"q{i}", "judge": int(t)} for i, t in enumerate(truth)]
    two = {name: given[name] for name in ("Ann", "Ben")}
    found = calibrate_json(write(tmp_path / "two.jsonl", by_annotator(rows, **two)))["annotators"]
    assert found["kappa"]["point"] == pytest.approx(cohen_kappa(given["Ann"], given["Ben"]))
    assert found["agreement"]["point"] == pytest.approx(np.mean(np.equal(given["Ann"], given["Ben"])))
    assert (found["statistic"], found["agreement"]["method"], found["pairs"]) == ("Cohen's kappa", "wilson", [])
    assert found["kappa"]["low"] < found["kappa"]["point"] < found["kappa"]["high"]
    found = calibrate_json(write(tmp_path / "three.jsonl", by_annotator(rows, **given)))["annotators"]
    assert found["kappa"]["point"] == pytest.approx(fleiss_kappa(np.array(list(given.values())).T))
    assert found["statistic"] == "Fleiss' kappa"
    assert [pair["annotators"] for pair in found["pairs"]] == [["Ann", "Ben"], ["Ann", "Cleo"], ["Ben", "Cleo"]]
    assert found["pairs"][1]["kappa"]["point"] == pytest.approx(cohen_kappa(given["Ann"], given["Cleo"]))


def test_one_file_per_annotator_is_the_same_as_one_file(tmp_path):
    labels = {"Ann": [1, 1, 0, 1], "Ben": [1, 0, 0, 0]}
    both = write(tmp_path / "both.jsonl", by_annotator(FOUR, **labels))
    files = [write(tmp_path / f"{name}.jsonl", by_annotator(FOUR, **{name: given})) for name, given in labels.items()]
    assert calibrate_json(*files) == calibrate_json(both)
    unnamed = [
        write(tmp_path / f"{name}-2.jsonl", [{**row, "human": label} for row, label in zip(FOUR, given, strict=True)])
        for name, given in labels.items()
    ]
    assert calibrate_json(*unnamed)["annotators"]["n_labels"] == {"Ann-2.jsonl": 4, "Ben-2.jsonl": 4}


def test_an_annotator_who_labelled_a_thing_twice_is_refused_and_scores_are_averaged(tmp_path):
    rows = by_annotator([{"id": f"q{i}", "judge": 1} for i in range(4)], Ann=[1, 1, 0, 1], Ben=[1, 0, 0, 0])
    with pytest.raises(InputError, match="Ann labelled q0 twice: keep one row per annotator"):
        calibrate(write(tmp_path / "l.jsonl", [*rows, rows[0]]))
    scores = read_labels([{"id": "q", "human": h, "annotator": a, "judge": 3} for a, h in (("A", 2), ("B", 5))])
    assert (scores.human.tolist(), scores.scores) == ([3.5], True)


def test_one_annotator_and_old_sheets_are_read_as_before(tmp_path):
    """`by` of a single person changes nothing, also where an id stands for several candidates without a place."""
    rows = [{"id": "q0", "human": 1, "judge": 1, "by": "Ann"}, {"id": "q0", "human": 0, "judge": 1, "by": "Ann"}]
    found = read_labels(rows)
    assert (len(found), found.annotators, found.votes) == (2, (), None)
    assert calibrate_json(write(tmp_path / "l.jsonl", rows))["annotators"] is None
    old = [{"id": "q0", "index": 0, "human": 1, "by": "Ann"}, {"id": "q1", "index": 0, "human": 0, "by": "Ben"}]
    assert read_labels(old).human.tolist() == [1, 0]


# real labels


def panda(folder):
    lines = (folder / "pandalm_pairs_3humans_2judges.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("judge", "garbage"), [("gpt35", 25), ("pandalm7b", 0)])
def test_people_against_two_judges_of_pairs(sets_folder, tmp_path, judge, garbage):
    """Does the first answer win? Verdicts are whole numbers or words, and a few are neither."""
    wins = {"1": "yes", "2": 0, "0": False, "Tie": "no"}
    rows, kept = [], []
    for pair in panda(sets_folder):
        value, times = Counter(map(str, pair["humans"])).most_common(1)[0]
        human = value == "1" if times > 1 else None
        said = str(pair["judges"][judge])
        rows.append({"id": pair["group_id"], "human": human, "judge": wins.get(said, said)})
        if human is not None and said in wins:
            kept.append((human, said == "1"))
    found = calibrate_json(write(tmp_path / "panda.jsonl", rows))
    assert found["n_not_graded"] == garbage
    assert found["n_labels"] == len(kept)
    h, j = np.array(kept).T
    assert found["confusion"] == {
        "tp": (h & j).sum(),
        "fp": (~h & j).sum(),
        "fn": (h & ~j).sum(),
        "tn": (~h & ~j).sum(),
    }
    assert found["agreement"]["point"] == pytest.approx((h == j).mean())
    assert 0.3 < found["kappa"]["low"] < found["kappa"]["high"] < 0.9


def test_three_people_agree_on_most_pairs(sets_folder):
    votes = np.array([[int(h) for h in pair["humans"]] for pair in panda(sets_folder)])
    assert 0.75 < fleiss_kappa(votes) < 1.0
