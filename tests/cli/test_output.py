"""Every verb prints every form, to the terminal and to a file; programs can read them."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kofn.api import options as api_options
from kofn.cli import VERBS, kofn
from kofn.cli.verb_options import FORMATS
from kofn.cli.view_verb import view_command as view

EXAMPLES = Path(__file__).parents[2] / "examples"
ARITHMETIC = str(EXAMPLES / "arithmetic.jsonl")


def answer(prompt):
    """A model that gives a verdict, and a number."""
    return "The answer is 4. Verdict: pass"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small stored runs, a problem, and samples of functions."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("a", "b"):
        shared = {"reference": "4", "input": "2 + 2", "outputs": ["4", "5", "4"]}
        rows = [{"id": f"q{i}", "kind": "x" if i % 2 else "y", **shared} for i in range(12)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        invoke("score", folder / f"{name}.jsonl", "--out", folder / "runs" / name, "--task", "sums")
    test = "def check(f):\n    assert f() == 1\n"
    task = {"task_id": "f/0", "prompt": "def one():\n", "entry_point": "one", "test": test}
    (folder / "tasks.jsonl").write_text(json.dumps(task))
    (folder / "samples.jsonl").write_text(json.dumps({"task_id": "f/0", "completion": "    return 1\n"}))
    return folder


def invoke(*args, **more):
    done = CliRunner().invoke(kofn, [str(a) for a in args], **more)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


PRINTING = [verb for verb in VERBS if verb not in ("view", "completion")]  # a server, and a script for a shell


def command_of(verb, folder, form):
    """A small command of each verb; `form` makes names of what it writes."""
    run, other = folder / "runs" / "a", folder / "runs" / "b"
    model = f"fake:{__name__}:answer"
    return {
        "run": ["starter", "-m", model, "--limit", "1", "--out", folder / f"run-{form}"],
        "score": [folder / "a.jsonl"],
        "verify": [folder / "tasks.jsonl", folder / "samples.jsonl", "--unsafe", "--out", folder / f"verify-{form}"],
        "judge": [folder / "a.jsonl", "--rubric", "correctness", "-m", model, "--out", folder / f"judged-{form}"],
        "new": ["problem", folder / f"problem-{form}"],
        "report": [run],
        "export": [run, "--to", folder / f"{form}.parquet"],
        "check": [run, "--require", "any_pass >= 0.5"],
        "calibrate": [EXAMPLES / "labels.csv", "--apply", EXAMPLES / "judged.jsonl"],
        "compare": [run, other],
        "extract-audit": [run],
        "curve": [run],
        "plan": ["--p", "0.5", "--width", "0.1"],
        "trend": [run, other],
        "list": ["metrics"],
        "describe": ["starter"],
        "doctor": [],
        "explain": [],
    }[verb]


def assert_reads(form, text):
    """The text is what its form says."""
    if form == "json":
        assert json.loads(text)
    elif form == "csv":
        header, *rows = list(csv.reader(io.StringIO(text)))
        assert rows
        assert len(set(header)) == len(header)
        assert all(len(row) == len(header) for row in rows)
    elif form == "markdown":
        tables = re.findall(r"^(\|.*\|)\n\|(?:-+:?\|)+\n((?:\|.*\|\n?)+)", text, re.MULTILINE)
        assert tables
        for header, rows in tables:
            widths = {len(re.findall(r"(?<!\\)\|", line)) for line in (header, *rows.splitlines())}
            assert len(widths) == 1
    else:
        assert text.strip()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("verb", PRINTING)
def test_every_verb_prints_every_form(verb, form, folder):
    done = invoke(verb, *command_of(verb, folder, form), "--output-format", form)
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.stdout
    if verb != "export" or form != "table":  # of an export in a table, all there is to say is on stderr
        assert_reads(form, done.stdout)


@pytest.mark.parametrize(("ending", "form"), [("json", "json"), ("csv", "csv"), ("md", "markdown"), ("txt", "table")])
def test_a_file_gets_the_form_of_its_ending_and_the_terminal_nothing(ending, form, folder, tmp_path):
    path = tmp_path / f"out.{ending}"
    done = invoke("compare", folder / "runs" / "a", folder / "runs" / "b", "-o", path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == f"output written to {path}\n"
    assert_reads(form, path.read_text())
    again = invoke("compare", folder / "runs" / "a", folder / "runs" / "b", "-o", path)
    assert again.stderr == f"output written to {path}, over the file that was there\n"


def test_a_file_has_what_the_terminal_shows(folder, tmp_path):
    for form in FORMATS:
        args = ["curve", folder / "runs" / "a", "--output-format", form]
        assert invoke(*args, "-o", "-").stdout == invoke(*args).stdout
        invoke(*args, "-o", tmp_path / "out")
        assert (tmp_path / "out").read_text() == invoke(*args).stdout


def test_numbers_in_csv_are_whole(folder):
    table = invoke("score", folder / "a.jsonl", "--output-format", "csv").stdout
    data = json.loads(invoke("score", folder / "a.jsonl", "--json").stdout)["estimates"]
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [float(row["point"]) for row in rows] == [one["point"] for one in data]
    assert [row["low"] for row in rows] == ["" if one["low"] is None else str(one["low"]) for one in data]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--json", "--output-format", "csv"], "--json and --output-format csv are forms of one output: give one"),
        (["--output-format", "yaml"], "'yaml' is not one of"),
        (["-o", "nowhere/out.json"], "there is no directory nowhere"),
        (["-o", "."], "is a directory: give the name of a file"),
    ],
)
def test_a_mistake_is_told_before_any_work(args, said, folder):
    done = CliRunner().invoke(kofn, ["score", str(folder / "a.jsonl"), *args])
    assert said in (done.output or "") + str(done.exception)
    assert done.exit_code != 0


@pytest.mark.parametrize("verb", PRINTING)
def test_no_verb_begins_when_its_output_has_no_place(verb, folder, tmp_path):
    before = sorted(folder.rglob("*"))
    args = [str(arg) for arg in command_of(verb, folder, "nowhere")]
    done = CliRunner().invoke(kofn, [verb, *args, "-o", str(tmp_path / "nowhere" / "out.json")])
    assert f"there is no directory {tmp_path / 'nowhere'}" in str(done.exception)
    assert done.stdout == ""
    assert sorted(folder.rglob("*")) == before


def test_no_verb_writes_over_the_files_of_a_run(folder):
    run = folder / "runs" / "a"
    before = (run / "run.json").read_bytes()
    done = CliRunner().invoke(kofn, ["score", str(run), "-o", str(run / "run.json")])
    assert "holds the run itself" in str(done.exception)
    assert (run / "run.json").read_bytes() == before


def test_the_viewer_says_where_it_is_in_a_form_that_programs_read(monkeypatch, tmp_path):
    monkeypatch.setattr("kofn.viewer.server.serve", lambda *_, announce, **__: announce("http://127.0.0.1:7717/"))
    done = CliRunner().invoke(view, [str(tmp_path), "--json"])
    assert json.loads(done.stdout) == {"directory": str(tmp_path), "address": "http://127.0.0.1:7717/"}


# one grammar


def commands():
    for verb in [*PRINTING, "view"]:
        command = kofn.get_command(click.Context(kofn), verb)
        yield from ([command] if not isinstance(command, click.Group) else command.commands.values())


@pytest.mark.parametrize("command", list(commands()), ids=lambda c: c.name)
def test_every_verb_has_the_same_output_options(command):
    flags = {flag for option in command.params for flag in option.opts}
    assert {"--output-format", "-o", "--output", "--json"} <= flags


def keyword_classes():
    return [one for name, one in vars(api_options).items() if name.endswith("Keywords")]


@pytest.mark.parametrize("kind", keyword_classes(), ids=lambda k: k.__name__)
def test_python_and_the_command_line_name_options_alike(kind):
    verb = {"AuditKeywords": "extract-audit"}.get(kind.__name__, kind.__name__.removesuffix("Keywords").lower())
    command = kofn.get_command(click.Context(kofn), verb)
    named = {option.name: option for option in command.params if isinstance(option, click.Option)}
    for name, described in api_options.options_of(kind).items():
        if described is not None:
            flag = f"--{name.replace('_', '-')}"
            assert flag in named[name].opts
            assert named[name].help.startswith(described.help)
            assert [f"--{other.replace('_', '-')}" for other in described.also] == list(
                getattr(named[name], "also", ())
            )
            assert described.default in (None, named[name].default)
