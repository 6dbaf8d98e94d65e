"""Bad input ends in one line that names the place and the fix, exit code 2, and no traceback."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def kofn(*args, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "kofn", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        check=False,
    )


def refused(*args, cwd=None):
    """The one line a refusal prints."""
    done = kofn(*args, cwd=cwd)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


GOOD = b'{"id": "a", "output": "4", "reference": "4", "pass": true}\n'

FILES = {
    "a broken line": (GOOD + b'{"id": "b", "output": \n', ["line 2", "not JSON"]),
    "half a file": (GOOD * 2 + b'{"id": "b", "outp', ["line 3", "not JSON"]),
    "a missing id": (GOOD + b'{"output": "4", "pass": true}\n', ["line 2", "id"]),
    "no id anywhere": (b'{"output": "4", "pass": true}\n', ["id", "--field id=NAME"]),
    "lists of unequal length": (
        b'{"scores": [1, 0], "passes": [1]}\n',
        ["line 1", "scores has 2", "passes has 1"],
    ),
    "a repeat twice": (
        b'{"id": "a", "repeat": 0, "pass": 1}\n{"id": "b", "repeat": 0, "pass": 1}\n{"id": "a", "repeat": 0}\n',
        ["line 3", "'a'", "repeat 0 twice"],
    ),
    "an empty file": (b"", ["empty"]),
    "only white space": (b" \n\n  \n", ["empty"]),
    "a binary file": (b"\x7fELF\x00\x00\x01\x02", ["binary"]),
    "a gzip file": (b"\x1f\x8b\x08\x00", ["damaged gzip"]),
    "NaN": (GOOD + b'{"id": "b", "score": NaN}\n', ["line 2", "null"]),
    "infinity": (b'{"id": "b", "score": -Infinity}\n', ["line 1", "null"]),
    "an overflowing number": (b'{"id": "b", "score": 1e999}\n', ["line 1"]),
    "invalid UTF-8": (GOOD + b'{"id": "b", "output": "\xff\xfe"}\n', ["line 2", "UTF-8"]),
    "a list instead of an object": (GOOD + b"[1, 2]\n", ["line 2", "object"]),
    "prose": (b"hello world\n", ["line 1", "hello world"]),
    "a pass that is neither": (GOOD + b'{"id": "b", "pass": 0.5}\n', ["line 2", "'pass'", "0.5"]),
    "a score that is text": (b'{"id": "b", "score": "good"}\n', ["line 1", "'score'", "good"]),
    "nothing to score": (b'{"id": "b", "colour": "red"}\n', ["line 1", "nothing to score", "colour"]),
    "an id that is null": (b'{"id": null, "outputs": ["a"]}\n', ["line 1", "'id' is null"]),
    "outputs that are no list": (b'{"id": 1, "outputs": "a"}\n', ["line 1", "'outputs'", "expected a list"]),
    "CSV in another encoding": (b"id,output,pass\na,caf\xe9,1\n", ["line 2", "UTF-8"]),
    "every set empty": (b'{"id": "b", "outputs": []}\n', ["no candidates"]),
    "an array with a number in it": (b'[{"id": "a", "pass": 1}, 3]', ["item 2", "object"]),
    "CSV without an id": (b"output,pass\nx,1\n", ["id", "output"]),
    "CSV with a bad label": (b"id,output,pass\na,x,1\nb,y,maybe\n", ["row 2", "'pass'", "maybe"]),
    "CSV with a header only": (b"id,output,pass\n", ["no rows"]),
    "CSV with a repeat twice": (b"id,repeat,pass\na,1,1\na,1,0\n", ["row 2", "repeat 1 twice"]),
    "half a Parquet file": (b"PAR1\x00\x00\x00", ["Parquet"]),
}


@pytest.mark.commands(quick=6)
@pytest.mark.parametrize("name", FILES)
def test_bad_file_is_refused_in_one_line_that_names_it(name, tmp_path):
    content, said = FILES[name]
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(content)
    line = refused("score", path)
    assert str(path) in line
    for part in said:
        assert part in line


def test_a_line_of_a_gigabyte_is_refused_without_reading_it(tmp_path):
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.write(GOOD + b'{"id": "' + b"x" * 8192)
        file.truncate(1 << 30)
    line = refused("score", path)
    assert "line 2 is longer than 64 MiB" in line


def test_a_directory_and_a_missing_file(tmp_path):
    assert "is a directory" in refused("score", tmp_path)
    assert "no such file" in refused("score", tmp_path / "nowhere.jsonl")


OPTIONS = {
    "an unknown aggregator": (["-a", "any_pas"], ["any_pas", "any_pass"]),
    "an unknown extractor": (["--extract", "nmber"], ["nmber", "number"]),
    "an unknown metric": (["--metric", "exactmatch"], ["exactmatch", "exact_match"]),
    "an unknown interval": (["--interval", "wilsn"], ["wilsn", "wilson"]),
    "k larger than any set": (["-a", "pass@9"], ["pass@9", "largest set has 2"]),
    "a level of 95": (["--level", "95"], ["level", "95"]),
    "a field that is not there": (["--by", "countr"], ["countr", "country"]),
    "a cluster that is not there": (["--cluster", "thread"], ["thread"]),
    "a weight that is text": (["--weight", "country"], ["country", "'a'", "weight"]),
    "an aggregator twice": (["-a", "mean", "-a", "mean"], ["mean", "twice"]),
    "an aggregator without its selector": (["-a", "selected"], ["selected", "selector"]),
    "a parameter it does not have": (["-a", "ndcg(depth=3)"], ["ndcg", "depth", "k"]),
    "code for a parameter": (["-a", "ndcg(k=__import__('os'))"], ["plain values"]),
    "a broken pattern": (["--extract", "pattern('(')"], ["pattern"]),
    "a role that is not one": (["--field", "colour=x"], ["role=name"]),
    "wilson on a mean of repeats": (["-a", "mean", "--interval", "wilson"], ["wilson", "bootstrap"]),
    "a field of lists": (["--by", "meta"], ["meta", "one value a case"]),
    "a field of candidates": (["--by", "pass"], ["pass", "one value a case"]),
    "an option's value": (["--level", "0.95%"], ["--level", "--help"]),
    "a module that is not there": (["-a", "nowhere.rules:mine"], ["nowhere"]),
}


@pytest.mark.commands(quick=5)
@pytest.mark.parametrize("name", OPTIONS)
def test_bad_option_is_refused_in_one_line(name, tmp_path):
    args, said = OPTIONS[name]
    path = tmp_path / "outputs.jsonl"
    row = '{{"id": "{}", "output": "{}", "reference": "4", "pass": {}, "country": "BR", "meta": []}}\n'
    path.write_text("".join(row.format(*v) for v in [("a", 4, 1), ("a", 5, 0), ("b", 4, 1), ("b", 4, 1)]))
    line = refused("score", path, *args)
    for part in said:
        assert part in line


def test_an_output_directory_that_exists_is_refused_before_any_work(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "something").write_text("precious")
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(GOOD)
    assert "already there" in refused("score", path, "--out", tmp_path / "run")


def test_a_run_is_replaced_only_with_force_and_never_what_cannot_be_made_again(tmp_path):
    path, run = tmp_path / "outputs.jsonl", tmp_path / "run"
    path.write_bytes(GOOD)
    assert kofn("score", path, "--out", run, "--task", "sums").returncode == 0
    line = refused("score", path, "--out", run)
    assert re.search(r"run: already holds a run of sums \(20\d\d-\d\d-\d\d \d\d:\d\d UTC, 1 case\)", line)
    assert line.endswith("or --force to replace it")
    path.write_bytes(GOOD + GOOD.replace(b'"a"', b'"b"'))
    assert kofn("score", path, "--out", run, "--force").returncode == 0
    assert "2 cases" in refused("score", path, "--out", run)
    assert "is the run that is graded again" in refused("score", run, "--out", run, "--force")
    (run / "labels-ana.jsonl").write_text("{}\n")
    assert "with labels-ana.jsonl, which --force does not remove" in refused("score", path, "--out", run, "--force")


def test_a_place_that_cannot_be_written_is_reported_before_the_work(tmp_path):
    path = tmp_path / "nothing.jsonl"  # which is not there: the place is looked at first
    for args in (["score", path, "-o", "/proc/x.json"], ["check", path, "--junit", "/proc/x.xml"]):
        done = kofn(*args)
        assert (done.returncode, done.stdout) == (3, "")
        assert "cannot be written" in done.stderr


def test_unknown_verbs_and_flags_are_one_line_too(tmp_path):
    done = kofn("scroe", "x")
    assert done.returncode == 2
    assert "did you mean score" in done.stderr
    done = kofn("score", "x", "--jsn")
    assert done.returncode == 2
    assert "--json" in done.stderr


def test_failures_of_a_users_own_function_name_it_and_the_case(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def rule(one): return len(one.texts[0])\n"
        "def metric(p, r): return 1 / 0\n"
        "def reader(text, choices=None): return 5\n"
    )
    path = tmp_path / "outputs.jsonl"
    path.write_text('{"id": "q7", "reference": "4", "outputs": [null, "4"]}\n')
    assert "mine:rule failed on case 'q7': TypeError" in refused("score", path, "-a", "mine:rule", cwd=tmp_path)
    assert "metric metric failed on '4' against '4': ZeroDivisionError" in refused(
        "score", path, "--metric", "mine:metric", "--extract", "text", cwd=tmp_path
    )
    assert "extractor reader returned int" in refused("score", path, "--extract", "mine:reader", cwd=tmp_path)


@pytest.mark.commands
def test_a_full_disk_and_a_closed_pipe_end_in_one_line_or_none(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(GOOD)
    shell = f"{sys.executable} -m kofn score {path}"
    done = subprocess.run(f"{shell} > /dev/full", shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - ours
    assert done.returncode == 3
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    done = subprocess.run(f"{shell} | true", shell=True, capture_output=True, text=True, check=False)  # noqa: S602 - ours
    assert done.stderr == ""


def test_control_characters_of_a_file_never_reach_the_terminal(tmp_path):
    path = tmp_path / "outputs.jsonl"
    path.write_text(
        '{"id": "a", "country": "\\u001b[31mBR\\u202e", "pass": 1}\n{"id": "b", "country": "AR", "pass": 0}\n'
    )
    done = kofn("score", path, "--by", "country")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert "BR" in done.stdout
