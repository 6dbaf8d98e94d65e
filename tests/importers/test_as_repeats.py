"""Several files as repeats of the same cases: matched by id, or by place; what does not match is said."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kofn
from kofn.errors import InputError
from kofn.importers import read


def lines(path, rows, blank=False):
    path.write_text("".join(json.dumps(row) + "\n" + ("\n" if blank else "") for row in rows))
    return path


def repeats(tmp_path, *files, **options):
    paths = [lines(tmp_path / f"run{i}.jsonl", rows) for i, rows in enumerate(files, 1)]
    return read(paths, as_repeats=True, **options)


def test_rows_with_ids_meet_whatever_their_order(tmp_path):
    one = [{"id": i, "output": f"{i} of 1", "reference": str(i)} for i in "abc"]
    two = [{"id": i, "output": f"{i} of 2", "reference": str(i)} for i in "cab"]
    table = repeats(tmp_path, one, two)
    assert table.cases["case_id"].to_list() == ["a", "b", "c"]
    assert table.candidates["text"].to_list() == ["a of 1", "a of 2", "b of 1", "b of 2", "c of 1", "c of 2"]
    assert table.notes == ()


def test_rows_without_ids_meet_by_their_place(tmp_path):
    one = [{"output": f"{i} of 1", "reference": str(i)} for i in range(3)]
    two = [{"output": f"{i} of 2", "reference": str(i)} for i in range(3)]
    table = repeats(tmp_path, one, two)
    assert table.cases["case_id"].to_list() == ["1", "2", "3"]
    assert table.candidates["text"].to_list()[:2] == ["0 of 1", "0 of 2"]


def test_the_place_is_that_among_the_rows_whichever_reader_read_them(tmp_path):
    rows = [{"output": str(i), "pass": i % 2 == 0} for i in range(4)]
    mixed = [{"output": str(i), "pass": "yes" if i % 2 == 0 else 0} for i in range(4)]
    first, second = lines(tmp_path / "a.jsonl", rows, blank=True), lines(tmp_path / "b.jsonl", mixed, blank=True)
    csv = tmp_path / "c.csv"
    csv.write_text("output,pass\n" + "".join(f"{i},{int(i % 2 == 0)}\n" for i in range(4)))
    wide = lines(tmp_path / "d.jsonl", [{"outputs": [{"text": str(i), "pass": i % 2 == 0}]} for i in range(4)])
    table = read([first, second, csv, wide], as_repeats=True)
    assert table.cases["case_id"].to_list() == ["1", "2", "3", "4"]
    assert table.candidates["passed"].to_list() == [1] * 4 + [0] * 4 + [1] * 4 + [0] * 4


def test_without_ids_unequal_lengths_are_refused(tmp_path):
    rows = [{"output": "x", "pass": 1}] * 3
    with pytest.raises(InputError, match=r"run1\.jsonl has 3, .*run2\.jsonl has 2 cases: without ids"):
        repeats(tmp_path, rows, rows[:2])


@pytest.mark.parametrize("named", [0, 1])
def test_ids_in_one_file_alone_are_refused(named, tmp_path):
    files = [[{"id": str(i), "output": "x", "pass": 1} for i in (1, 2)], [{"output": "x", "pass": 1}] * 2]
    with pytest.raises(InputError, match=r"run\d\.jsonl has no ids and .*run\d\.jsonl has: give every row the id"):
        repeats(tmp_path, *(files if named == 0 else files[::-1]))


@pytest.mark.parametrize("named", [0, 1])
def test_ids_on_some_rows_alone_are_refused_by_the_line(named, tmp_path):
    rows = [{"outputs": ["x"]}, {"outputs": ["x"]}]
    rows[named]["id"] = "a"
    with pytest.raises(InputError, match=rf"run1\.jsonl: line {2 - named}: no 'id', which other rows have"):
        repeats(tmp_path, rows, rows)


def test_cases_that_a_file_lacks_are_told_by_name_and_keep_what_there_is(tmp_path):
    one = [{"id": f"q{i}", "pass": 1} for i in range(5)]
    table = repeats(tmp_path, one, one[:3], one)
    assert np.diff(table.offsets).tolist() == [3, 3, 3, 2, 2]
    assert f"{tmp_path}/run2.jsonl lacks 2 of 5 cases (q3, q4)" in map(str, table.notes)
    assert "2 of 5 cases have 2 of 3 repeats (q3, q4)" in map(str, table.notes)


def test_files_that_share_no_case_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"no case of .* their ids differ everywhere"):
        repeats(tmp_path, [{"id": "a", "pass": 1}], [{"id": "b", "pass": 1}])


def test_one_file_is_no_repeats(tmp_path):
    with pytest.raises(InputError, match="one file is no repeats"):
        repeats(tmp_path, [{"id": "a", "pass": 1}])


def test_two_references_of_one_case_are_refused_by_file(tmp_path):
    with pytest.raises(InputError, match=r"run2\.jsonl: case 'a' has reference '5' here and '4' before"):
        repeats(
            tmp_path, [{"id": "a", "output": "x", "reference": "4"}], [{"id": "a", "output": "x", "reference": "5"}]
        )


def test_a_file_that_is_a_copy_of_another_is_told_whatever_its_bytes(tmp_path):
    rows = [{"id": str(i), "output": f"o{i}", "pass": i % 2} for i in range(4)]
    other = [{"id": str(i), "output": f"p{i}", "pass": i % 2} for i in range(4)]
    paths = [lines(tmp_path / "run1.jsonl", rows), lines(tmp_path / "run2.jsonl", other)]
    paths += [
        lines(tmp_path / "run3.jsonl", rows),
        lines(tmp_path / "run4.jsonl", [dict(reversed(r.items())) for r in rows]),
    ]
    said = "holds the candidates of {0}/run1.jsonl, word for word: the same file twice, or a cache? they count twice"
    expected = tuple(f"{tmp_path}/{name} {said.format(tmp_path)}" for name in ("run3.jsonl", "run4.jsonl"))
    assert tuple(map(str, read(paths, as_repeats=True).notes)) == expected
    assert tuple(map(str, read(paths).notes)) == expected
    assert read(paths[:2], as_repeats=True).notes == ()


def test_files_that_say_the_same_of_unequal_cases_are_no_copies(tmp_path):
    table = repeats(tmp_path, [{"id": c, "output": "x"} for c in "ab"], [{"id": c, "output": "x"} for c in "ac"])
    assert str(table.notes[0]) == f"{tmp_path}/run1.jsonl lacks 1 of 3 cases (c)"


def test_wide_files_as_repeats_add_all_their_candidates(tmp_path):
    table = repeats(tmp_path, [{"id": "a", "outputs": ["1", "2"]}], [{"id": "a", "outputs": ["3"]}])
    assert table.candidates["text"].to_list() == ["1", "2", "3"]


def test_the_command_reads_repeats_and_says_what_it_noticed(tmp_path):
    rows = [{"id": i, "output": "same", "pass": 1} for i in range(16)]
    one = lines(tmp_path / "run1.jsonl", rows)
    two = lines(tmp_path / "run2.jsonl", [*rows[:15], {**rows[15], "output": "another"}])
    done = subprocess.run(
        [sys.executable, "-m", "kofn", "score", one, two, "--as-repeats", "-a", "mean"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "16 cases x 2 candidates" in done.stdout
    assert "! 15 of 16 sets have identical candidates: a cache" in done.stdout


TABLES = st.integers(1, 4).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.lists(st.sampled_from(["4", "5", "It is 4.", "no idea", ""]), min_size=n, max_size=n),
            st.sampled_from(["4", "5"]),
        ),
        min_size=1,
        max_size=6,
    )
)


@pytest.mark.long
@given(TABLES, st.booleans(), st.randoms(use_true_random=False))
def test_a_wide_file_split_into_its_columns_gives_the_same_numbers(tmp_path_factory, cases, named, rng):
    """The law: n files with the j-th output of every case are the wide file with all of them."""
    folder = tmp_path_factory.mktemp("law")
    n = len(cases[0][0])
    ids = [{"id": f"q{i}"} for i in range(len(cases))]
    wide = [{**ids[i], "reference": ref, "outputs": outs} for i, (outs, ref) in enumerate(cases)]
    files = []
    for j in range(n):
        rows = [
            {**(ids[i] if named else {}), "reference": ref, "output": outs[j]} for i, (outs, ref) in enumerate(cases)
        ]
        if named and j:  # with ids the order of rows means nothing; the first file gives the order of cases
            rng.shuffle(rows)
        files.append(str(lines(folder / f"run{j}.jsonl", rows)))
    flags = {
        "aggregate": ["first", "mean", "any_pass", "all_pass", "majority"],
        "extract": "number",
        "n_resamples": 200,
    }
    whole = kofn.score(wide, **flags)
    apart = kofn.score(files, as_repeats=n > 1, **flags) if n > 1 or named else whole
    numbers = [[(e.metric, e.aggregator, e.point, e.low, e.high, e.n) for e in r.estimates] for r in (whole, apart)]
    assert numbers[0] == numbers[1]
    assert (whole.n_cases, whole.n_candidates) == (apart.n_cases, apart.n_candidates)
