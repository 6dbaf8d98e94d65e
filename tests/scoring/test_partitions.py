"""Parquet read in parts says what it says when read at once, whatever the parts are and wherever they are graded."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kofn
from kofn.errors import InputError
from kofn.importers import parquet_partitions as pieces
from kofn.parallel import engine

SAMPLED = {"audit", "distinct_1", "distinct_2", "redundancy", "n_sets_sampled"}  # looked at in some of the cases


def frame(seed: int = 0, n: int = 60, *, sizes=(4,), labels=None, missing=0.0, fields=()):
    """Rows of candidates whose answers are numbers; every third case is easy."""
    rng = np.random.default_rng(seed)
    rows = []
    for case in range(n):
        part_size = int(rng.integers(1, 30))
        for repeat in range(int(rng.choice(sizes))):
            right = rng.random() < (0.9 if case % 3 == 0 else 0.4)
            answer = part_size if right else int(rng.integers(1, 30))
            row = {"id": f"q{case}", "repeat": repeat, "output": f"So it is {answer}.", "reference": str(part_size)}
            row["cost"] = float(rng.random())
            known = rng.random() >= missing
            if labels == "pass":
                row["pass"] = bool(right) if known else None
            if labels in ("score", "both"):
                row["score"] = float(rng.integers(0, 5)) / 4 if known else None
            if labels in ("same", "both"):
                row["pass"] = bool(right)
            if labels == "same":
                row["score"] = float(right)
            if "country" in fields:
                row["country"] = ["BR", "DE", None][case % 3]
            if "level" in fields:
                row["level"] = float(case % 4) / (2 if case > n // 2 else 1)
            if "weight" in fields:
                row["weight"] = float(1 + case % 3)
            if "cluster" in fields:
                row["cluster"] = f"c{case // 3}"
            if "reward" in fields:
                row["reward"] = float(rng.normal())
            if "error" in fields and case == n - 1:
                row["error"] = "timeout"
                row["output"] = None
            rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def plain(result):
    """A result as it prints, without what is looked at in a sample, and without lines that name some cases."""

    def cut(value):
        if isinstance(value, dict):
            return {k: cut(v) for k, v in value.items() if k not in SAMPLED and k not in ("sources", "form")}
        return [cut(v) for v in value] if isinstance(value, list) else value

    text = json.dumps(result.to_dict())
    said = cut(json.loads(re.sub(r"\d+ of \d+ references", "references", text)))  # of a sample too
    for lines in ("warnings", "told"):
        said[lines] = sorted(line.partition(" (q")[0] for line in said[lines] if "depends on the extractor" not in line)
    # which of equally severe warnings comes first depends on the sample; that one is there is compared above
    said["headline"]["text"] = said["headline"]["text"].partition(". Warning: ")[0]
    del said["headline"]["warning"]
    said["coded_warnings"] = sorted(one["code"] for one in said["coded_warnings"] if one["code"] != "extractor-matters")
    return said


def same(a, b, path=""):
    assert type(a) is type(b) or isinstance(a, (int, float)), (path, a, b)
    if isinstance(a, dict):
        assert a.keys() == b.keys(), (path, a.keys() ^ b.keys())
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), (path, a, b)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}[{i}]")
    elif isinstance(a, float):
        assert math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12), (path, a, b)
    else:
        assert a == b, (path, a, b)


def check(rows, tmp_path, size=37, **options):
    path = tmp_path / "outputs.parquet"
    rows.write_parquet(path, row_group_size=50)
    whole, parts = kofn.score(path, **options), kofn.score(path, part_size=size, **options)
    same(plain(whole), plain(parts))
    return parts


SETTINGS = {
    "references": ({}, {}),
    "unequal sizes": ({"sizes": (1, 2, 5, 9)}, {}),
    "few short sets": ({"sizes": (8,) * 30 + (7,)}, {}),
    "labels": ({"labels": "pass", "missing": 0.1}, {}),
    "scores": ({"labels": "score", "missing": 0.1}, {}),
    "labels and scores": ({"labels": "both"}, {}),
    "scores that are the labels": ({"labels": "same"}, {}),
    "a threshold": ({"labels": "score"}, {"threshold": 0.5}),
    "asked for": ({}, {"aggregate": ["pass@2", "majority(ties='shared')", "all_pass", "agreement"]}),
    "own function": ({}, {"aggregate": lambda one: len(one) / 2}),
    "two metrics": ({}, {"metric": ["numeric", "exact_match"]}),
    "own metric": ({}, {"metric": lambda answer, _: {"mine": 0.5, "length": len(answer or "")}}),
    "by country": ({"fields": ("country",)}, {"by": "country"}),
    "by a number": ({"fields": ("level",)}, {"by": "level"}),
    "by two": ({"fields": ("country", "level")}, {"by": ["country", "level"]}),
    "weights": ({"fields": ("weight", "country")}, {"by": "country"}),
    "clusters": ({"fields": ("cluster",)}, {}),
    "cluster by name": ({"fields": ("country",)}, {"cluster": "country"}),
    "weight by name": ({"fields": ("level", "country")}, {"weight": "level", "by": "country"}),
    "top k": ({"sizes": (3, 5)}, {"top_k": 2}),
    "split": ({}, {"split": "test:0.3"}),
    "where": ({"fields": ("country",)}, {"where": {"country": "BR"}}),
    "wilson": ({}, {"aggregate": "any_pass", "interval": "wilson"}),
    "bca": ({}, {"aggregate": "mean", "interval": "bca", "level": 0.9}),
    "an error in the last case": ({"fields": ("error",)}, {}),
    "a selector": ({"fields": ("reward",)}, {"aggregate": ["selected", "weighted_vote", "selected@2"]}),
    "nothing to grade by": ({}, {"fields": {"reference": "cost"}, "metric": ()}),
}


@pytest.mark.long(quick=6)
@pytest.mark.parametrize("name", SETTINGS)
def test_parts_say_what_the_whole_says(name, tmp_path):
    made, options = SETTINGS[name]
    rows = frame(n=90, **made)
    if name == "nothing to grade by":
        rows, options = rows.drop("reference"), {}
    check(rows, tmp_path, **options)


@pytest.mark.long
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 99), size=st.integers(1, 200), n=st.integers(1, 40), missing=st.sampled_from([0.0, 0.5]))
def test_the_size_of_the_parts_does_not_matter(seed, size, n, missing, tmp_path):
    check(frame(seed, n, sizes=(1, 3, 4), labels="score", missing=missing), tmp_path, size=size)


@pytest.mark.long
@pytest.mark.parametrize("shuffled", [False, True])
def test_cases_whose_rows_stand_apart_are_put_together(shuffled, tmp_path):
    rows = frame(n=80, sizes=(3, 4))
    apart = rows.sample(fraction=1, shuffle=True, seed=1) if shuffled else rows.sort("repeat", maintain_order=True)
    check(apart, tmp_path, size=20)


def test_rows_that_stand_apart_are_noticed_from_a_part_of_the_ids(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "_one_in", lambda _: 8)
    check(frame(n=300).sort("repeat", maintain_order=True), tmp_path, size=200)
    check(frame(n=300), tmp_path, size=200)


def test_a_case_over_two_files_is_one_set(tmp_path):
    rows = frame(n=30)
    rows[:50].write_parquet(tmp_path / "a.parquet")
    rows[50:].write_parquet(tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    same(plain(kofn.score(files)), plain(kofn.score(files, part_size=16)))


def test_files_may_lack_columns_that_others_have(tmp_path):
    rows = frame(n=30, labels="pass")
    rows[:60].write_parquet(tmp_path / "a.parquet")
    rows[60:].drop("cost").write_parquet(tmp_path / "b.parquet")
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    same(plain(kofn.score(files)), plain(kofn.score(files, part_size=16)))


def test_a_case_in_several_files_has_the_candidates_of_all_of_them(tmp_path):
    """The same repeat numbers in two files are no clash: they are two files."""
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    frame(1, n=30).write_parquet(files[0])
    frame(1, n=30).with_columns(output=pl.lit("So it is 7.")).write_parquet(files[1])
    parts = kofn.score(files, part_size=16)
    same(plain(kofn.score(files)), plain(parts))
    assert parts.n_candidates == 240


def test_a_copy_of_a_file_counts_as_it_does_when_read_at_once(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        frame(n=30).write_parquet(tmp_path / "data" / f"{name}.parquet")
    folder = kofn.score(tmp_path / "data", part_size="auto")
    same(plain(kofn.score(str(tmp_path / "data" / "*.parquet"))), plain(folder))
    assert any("word for word" in line for line in map(str, folder.warnings))


def test_a_file_with_nothing_to_score_is_refused_and_one_that_lacks_a_field_is_named(tmp_path):
    rows = frame(n=30)
    rows[:60].write_parquet(tmp_path / "a.parquet")
    rows[60:].rename({"output": "reply"}).drop("cost").write_parquet(tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"b\.parquet: row 1: nothing to score"):
        kofn.score(tmp_path, part_size="auto")
    rows[60:].drop("reference").write_parquet(tmp_path / "b.parquet")
    result = kofn.score(tmp_path, part_size="auto")
    assert any("b.parquet: no reference, which other files have" in line for line in map(str, result.warnings))


def test_what_a_folder_holds_beside_parquet_is_said(tmp_path):
    frame(n=30).write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_text("{}")
    (tmp_path / "_SUCCESS").write_text("")
    result = kofn.score(tmp_path, part_size="auto")
    notes = [line for line in map(str, result.warnings) if line.startswith("not read")]
    assert len(notes) == 1
    assert "b.jsonl: of a folder" in notes[0]
    (tmp_path / "c.parquet").write_text("")
    with pytest.raises(InputError, match=r"c\.parquet: not readable"):
        kofn.score(tmp_path, part_size="auto")


def test_a_column_that_only_the_last_part_has_is_read_in_all(tmp_path):
    rows = frame(n=400)
    late = pl.when(pl.int_range(pl.len()) < 1590).then(None).otherwise(pl.lit(value=True)).alias("pass")
    result = check(rows.with_columns(late), tmp_path, size=100)
    assert [e.metric for e in result.estimates][:1] == ["pass"]


def test_places_of_options_count_from_where_all_of_them_say(tmp_path):
    rows = pl.DataFrame(
        {
            "id": [f"q{i}" for i in range(60) for _ in range(2)],
            "output": ["The answer is (B)", "The answer is (C)"] * 60,
            "choices": [["red", "green", "blue"]] * 120,
            "reference": [str(2 if i < 50 else 3) for i in range(60) for _ in range(2)],
        }
    )
    result = check(rows, tmp_path, size=20)
    assert result.get("first").point == pytest.approx(50 / 60)


def test_a_folder_is_a_data_set_and_its_folders_name_values(tmp_path):
    rows = frame(n=60, fields=("country",))
    for country in ("BR", "DE"):
        folder = tmp_path / "data" / f"country={country}"
        folder.mkdir(parents=True)
        rows.filter(pl.col("country") == country).drop("country").write_parquet(folder / "part-0.parquet")
    rows.filter(pl.col("country").is_not_null()).write_parquet(tmp_path / "all.parquet")
    whole = kofn.score(tmp_path / "all.parquet", by="country")
    same(plain(whole), plain(kofn.score(tmp_path / "data", by="country", part_size="auto")))


@pytest.mark.long
def test_an_engine_grades_the_parts_and_the_result_is_the_same_bit_for_bit(tmp_path):
    frame(n=90).write_parquet(tmp_path / "x.parquet")
    here = kofn.score(tmp_path / "x.parquet", part_size=50)
    with engine("local", workers=2) as machine:
        there = kofn.score(tmp_path / "x.parquet", part_size=50, engine=machine)
    assert here.to_dict() == there.to_dict()


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "kofn", "score", *map(str, arguments)], cwd=cwd, capture_output=True, text=True
    )


@pytest.mark.slow
def test_ray_grades_the_parts_of_a_partitioned_data_set_alike(tmp_path):
    rows = frame(n=300)
    (tmp_path / "data").mkdir()
    for at, part in enumerate(rows.iter_slices(400)):
        part.write_parquet(tmp_path / "data" / f"part-{at}.parquet")
    here = command("data", "--json", cwd=tmp_path)
    there = command("data", "--json", "--engine", "ray", "--ray-address", "local", "--part-size", "400", cwd=tmp_path)
    assert there.returncode == 0, there.stderr
    ours, theirs = json.loads(here.stdout), json.loads(there.stdout)
    same(ours["estimates"], theirs["estimates"])
    one = command("data", "--json", "--part-size", "400", cwd=tmp_path)
    assert one.stdout == there.stdout  # the same parts: the same bits


def changed(rows, name, at, value):
    return rows.with_columns(pl.when(pl.int_range(pl.len()) == at).then(pl.lit(value)).otherwise(name).alias(name))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda rows: rows.drop("id"), "no id field"),
        (lambda rows: changed(rows, "id", 77, None), "row 78: missing 'id'"),
        (lambda rows: changed(rows, "reference", 78, "9"), "row 79: case 'q19' has reference '9'"),
        (lambda rows: rows.clear(), "no rows"),
    ],
)  # fmt: skip
def test_bad_rows_are_named_by_their_place_in_the_file(change, said, tmp_path):
    change(frame(n=60)).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=said.replace("(", r"\(")) as problem:
        kofn.score(tmp_path / "x.parquet", part_size=20)
    assert "x.parquet" in str(problem.value)


@pytest.mark.commands
def test_what_cannot_be_read_in_parts_is_said(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": "a", "output": "1", "reference": "1"}\n')
    frame(n=9).write_parquet(tmp_path / "x.parquet")
    done = command("x.jsonl", "--part-size", 5, cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "only Parquet" in done.stderr
    with pytest.raises(InputError, match="only Parquet"):
        kofn.score(frame(n=9), part_size=5)
    kept = command("x.parquet", "--part-size", 5, "--out", "run", cwd=tmp_path)
    assert kept.returncode == 2
    assert "--part-size keeps no candidate" in kept.stderr
    away = command("file:///tmp/x.parquet", "--part-size", 5, cwd=tmp_path)
    assert "addresses are not read in parts" in away.stderr
    (tmp_path / "data").mkdir()
    frame(n=9).write_parquet(tmp_path / "data" / "x.parquet")
    folder = command("data", "--out", "run", cwd=tmp_path)
    assert "'data/**/*.parquet'" in folder.stderr
    nobody = command("x.parquet", "--part-size", 5, "--where", "id=nobody", cwd=tmp_path)
    assert nobody.returncode == 2
    assert "none is of id=nobody" in nobody.stderr
    reach = command("x.parquet", "--part-size", 5, "-a", "pass@9", cwd=tmp_path)
    assert "pass@9 is undefined: the largest set has 4 candidates" in reach.stderr


def test_parts_on_a_cluster_need_cases_that_stand_together(tmp_path):
    class Elsewhere:
        remote, workers = True, 2

        def map(self, function, items, *, shared):
            return [function(shared, item) for item in items]

    frame(n=30).sort("repeat", maintain_order=True).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match="stand apart"):
        kofn.score(tmp_path / "x.parquet", part_size=20, engine=Elsewhere())
