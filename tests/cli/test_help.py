"""What `--help` says of every verb: headings, one line per option, the common ones first; and names that still work."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

import kofn
from kofn.api.options import COMMON, GROUPS, CurveKeywords, settle, split_names
from kofn.cli import SECTIONS, VERBS
from kofn.cli import kofn as program
from kofn.cli.verb_options import MANY, VerbOption
from kofn.errors import InputError, UnknownName
from kofn.registry import ALSO_CALLED, known, parse_spec

WIDTH = 100


def answer_four(prompt):
    return "4" if prompt else ""


def verbs():
    """Every command with its own options."""
    for verb in VERBS:
        command = program.get_command(click.Context(program), verb)
        yield from command.commands.values() if isinstance(command, click.Group) else [command]


def options_of(command):
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def help_of(command):
    return click.Context(command, info_name=command.name, terminal_width=WIDTH).get_help()


def sections(text):
    """Heading -> lines, of what stands after the description."""
    found, heading = {}, None
    for line in text.splitlines():
        if re.fullmatch(r"\w[\w -]*:", line):
            found[heading := line[:-1]] = []
        elif heading is not None and line.strip():
            found[heading].append(line)
    return found


def test_verbs_stand_under_headings():
    shown = sections(program.get_help(click.Context(program, info_name="kofn", terminal_width=WIDTH)))
    assert [*SECTIONS, "Options"] == list(shown)
    for heading, own in SECTIONS.items():
        assert [line.split()[0] for line in shown[heading]] == list(own)  # one line each


@pytest.mark.parametrize("command", list(verbs()), ids=lambda c: c.name)
def test_every_option_has_a_heading_and_one_line(command):
    shown = sections(help_of(command))
    assert [heading for heading in GROUPS if heading in shown] == list(shown)
    lines = [line for own in shown.values() for line in own]
    assert len(lines) == len(options_of(command)) + 1  # and --help
    columns = {re.search(r"(?<=\S)\s{2,}(?=\S)", line).end() for line in lines}
    assert len(columns) == 1  # the texts of all sections begin in one column
    for line in lines:
        text = line[columns.copy().pop() :]
        assert text[0].isupper() or text.startswith(("correctness", "table")), line
        assert not text.endswith("."), line


@pytest.mark.parametrize("command", list(verbs()), ids=lambda c: c.name)
def test_ten_options_at_most_stand_first_where_there_are_many(command):
    shown = sections(help_of(command))
    assert (COMMON in shown) == (len(options_of(command)) + 1 > MANY)
    assert len(shown.get(COMMON, [])) <= 10


@pytest.mark.parametrize("command", list(verbs()), ids=lambda c: c.name)
def test_defaults_are_shown(command):
    for option in options_of(command):
        if isinstance(option, VerbOption) and option.type.name in ("float", "float range", "integer", "integer range"):
            given = option.default
            assert not isinstance(given, (int, float)) or f"default: {given:g}" in option.help, option.name


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["run", "starter", "--samples", "fact-01", "--dry-run"], "fact-01"),
        (["run", "starter", "--ids", "fact-01", "--dry-run"], "fact-01"),
        (["run", "starter", "--epochs", "2", "--max-tokens-total", "9", "--dry-run"], "fact-01"),
        (["run", "starter", "-r", "2", "-n", "1", "--token-budget", "9", "--dry-run"], "fact-01"),
    ],
)
def test_earlier_names_and_those_of_other_tools_are_accepted(args, said):
    done = CliRunner().invoke(program, args)
    assert done.exit_code == 0, done.output
    assert said in done.stdout


def test_earlier_names_are_shown_nowhere():
    for command in verbs():
        assert not re.search(r"--(samples|max-tokens-total|epochs|repeat)\b", help_of(command))


def test_a_mistyped_option_is_answered_with_a_name_that_help_shows():
    said = CliRunner().invoke(program, ["run", "starter", "--sampels", "a"]).output
    assert "'--sample'" in said
    assert "--samples" not in said


def test_earlier_keywords_of_python_are_accepted(tmp_path):
    rows = [{"id": str(i), "question": "2 + 2", "answer": "4"} for i in range(3)]
    task = {"name": "sums", "dataset": rows, "stages": [{"name": "answer", "prompt": "{question} ="}]}
    run = kofn.run(task, model=answer_four, samples=["0", "2"], epochs=2, max_tokens_total=10_000)
    assert (run.result.n_cases, run.result.n_candidates) == (2, 4)
    with pytest.raises(InputError, match="samples and ids are the same option"):
        kofn.run(task, model=answer_four, samples=["0"], ids=["1"])


def test_commas_separate_names_and_stay_inside_brackets():
    assert settle(CurveKeywords, {"by": "a,b"}).by == ("a,b",)  # a field may be called so
    assert split_names("numeric(tolerance=0.1,relative=True),exact_match") == [
        "numeric(tolerance=0.1,relative=True)",
        "exact_match",
    ]
    assert split_names("pattern('a,(b'),text") == ["pattern('a,(b')", "text"]
    rows = [{"id": "q", "scores": [1, 0, 1]}]
    assert [e.aggregator for e in kofn.score(rows, aggregate="pass@1,pass@2,ndcg(k=2)").estimates] == [
        "pass@1",
        "pass@2",
        "ndcg(k=2)",
    ]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, also in ALSO_CALLED.items() for name in also])
def test_what_other_tools_call_it_leads_to_a_name_that_there_is(kind, name):
    assert name not in known(kind)
    target = ALSO_CALLED[kind][name]
    assert (target.partition(":")[0] if kind == "model" else parse_spec(kind, target)[0]) in known(kind)
    assert f"did you mean {target}?" in str(UnknownName(kind, name.upper(), list(known(kind)), also=ALSO_CALLED[kind]))


def test_an_unknown_name_is_answered_with_ours(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "q", "reference": "a b", "output": "a"}\n')
    for args, said in (
        (["--metric", "f1"], "unknown metric 'f1': did you mean token_f1?"),
        (["-a", "majority_vote"], "did you mean majority?"),
        (["-a", "pass@k"], "expected a number for k, as in pass@5"),
        (["--extract", "regex"], "did you mean pattern?"),
    ):
        done = CliRunner().invoke(program, ["score", str(tmp_path / "a.jsonl"), *args])
        assert said in str(done.exception)
