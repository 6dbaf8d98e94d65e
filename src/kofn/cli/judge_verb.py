"""`kofn judge RUN|FILE`: lets a model grade outputs, as a new metric or selector."""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from kofn import generate, judge, render, runs, scoring
from kofn.cli.colors import style
from kofn.cli.model_options import LIMITS, asking_options
from kofn.cli.strict_option import leave_if_dipping
from kofn.core.escape import escape_controls
from kofn.core.fields import parse_field_options
from kofn.errors import WorldError

if TYPE_CHECKING:
    from kofn.judge.pairwise import Preference
    from kofn.runs.record import Run
    from kofn.scoring.configuration import GradingConfig

_PATH = click.Path(path_type=Path)
_COUNT = click.IntRange(min=1)


@click.command("judge")
@click.argument("source", metavar="RUN|FILE", type=_PATH)
@click.option("--rubric", required=True, metavar="R", help="correctness, helpfulness, faithfulness, preference, or a "
              "YAML file of your own.")  # fmt: skip
@click.option("--model", "-m", "models", multiple=True, required=True, metavar="M",
              help="The judge, as in kofn run; several are a panel.")  # fmt: skip
@click.option("--repeats", "-n", type=_COUNT, default=1, show_default=True, help="Verdicts a candidate.")
@click.option("--panel", type=click.Choice(["mean", "vote"]), default="mean", show_default=True,
              help="How several judges become one score.")  # fmt: skip
@click.option("--choose", is_flag=True, help="No reply: the verdict is the likeliest of all there are. For small "
              "models; needs log-likelihoods (smollm2, gguf:, hf:).")  # fmt: skip
@click.option("--against", type=_PATH, metavar="RUN|FILE", help="With a pairwise rubric: the other system.")
@click.option("--replace", is_flag=True, help="Write over a metric of this name that another judge gave.")
@click.option("--name", metavar="NAME", help="The metric's name (default: the rubric's).")
@click.option("--temperature", "-t", type=click.FloatRange(0, 5), help="Of the judge (default: the rubric's).")
@click.option("--max-tokens", type=_COUNT, help="Longest verdict (default: the rubric's).")
@click.option("--out", type=_PATH, metavar="DIR", help="For a FILE: the run directory (default: runs/FILE-RUBRIC).")
@click.option("--aggregate", "-a", multiple=True, metavar="A", help="Aggregator; repeatable.")
@click.option("--by", multiple=True, metavar="FIELD", help="Also within each value of this field; repeatable.")
@click.option("--top-k", type=_COUNT, metavar="K", help="For a FILE: the first K candidates of each case.")
@click.option("--split", metavar="PART", help="For a FILE: design or test cases, as design, test:0.3 or test:0.3:SEED.")
@click.option("--use", metavar="USE", help="How outputs are used: any, vote, select, list or all.")
@click.option("--field", "field_options", multiple=True, metavar="ROLE=NAME", help="A field's name in this file.")
@click.option("--seed", default=0, show_default=True, type=int, help="Seed of whatever is drawn.")
@asking_options
@click.option("--dry-run", is_flag=True, help="Print the first prompts exactly as sent, and stop.")
@click.option("--strict", is_flag=True, help="Exit code 1 where the same judge picks and grades.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    source: Path,
    rubric: str,
    against: Path | None,
    out: Path | None,
    dry_run: bool,
    strict: bool,
    as_json: bool,
    field_options: tuple[str, ...],
    **given: Any,
) -> None:
    """Let a model grade outputs that are there: one metric more, and nothing is generated again.

    A RUN is judged in place; a FILE (as in kofn score) becomes a new run directory. A reply that holds no verdict is
    not graded after one repair, never 0. The same command again asks only for what is new. With --against two systems
    are compared pair by pair, in both orders.
    """
    settings, options, fields = _settings(given), _options(given), parse_field_options(field_options)
    if dry_run:
        _show_prompts(source, rubric, options, fields)
        return
    if against is not None:
        found = judge.prefer(source, against, rubric, settings, out=out, options=options, fields=fields)
        _show_preference(found, as_json)
        _check_any(found.judge, f"{source} against {against}")
        return
    run = judge.judge(source, rubric, settings, out=out, options=options, fields=fields)
    _show(run, settings.name or _name(rubric), as_json)
    _leave(run, settings.name or _name(rubric), strict)


def _name(rubric: str) -> str:
    return judge.load_rubric(rubric).name


def _settings(given: dict[str, Any]) -> judge.JudgeSettings:
    own = (
        "models",
        "repeats",
        "panel",
        "name",
        "choose",
        "replace",
        "temperature",
        "max_tokens",
        "seed",
        "prices",
        "cache",
        "retry_errors",
    )
    return judge.JudgeSettings(
        **{name: given[name] for name in own},
        limits=generate.Limits(**{name: given[name] for name in LIMITS}),
        progress=True,
    )


def _options(given: dict[str, Any]) -> scoring.GradingConfig:
    return scoring.GradingConfig(
        aggregate=given["aggregate"],
        by=given["by"],
        top_k=given["top_k"],
        use=given["use"],
        split=None if given["split"] is None else scoring.Split.parse(given["split"]),
        seed=given["seed"],
    )


def _show_prompts(source: Path, rubric: str, options: GradingConfig, fields: dict[str, str]) -> None:
    """What a judge would be sent for the first candidates."""
    wanted = judge.load_rubric(rubric)
    for question in judge.first_questions(runs.load_graded(source, options, fields=fields), wanted)[:2]:
        click.echo(click.style(escape_controls(f"--- case {question.case_id}"), bold=True))
        for message in judge.judge_prompt(question, wanted):
            click.echo("\n".join(escape_controls(line) for line in f"[{message.role}]\n{message.content}".split("\n")))


def _show(run: Run, name: str, as_json: bool) -> None:
    result = run.scored_result
    if as_json:
        import orjson

        click.echo(orjson.dumps({**result.to_dict(), "judge": result.judges[name]}, option=orjson.OPT_INDENT_2))
        return

    click.echo(render.format_result(result, style))
    click.echo()
    facts = judge.judge_facts(name, result.judges)
    width = max(len(label) for label, _ in facts)
    for label, value in facts:
        lines = wrap(escape_controls(value), 108 - width, break_long_words=False) or [""]
        click.echo(f"{escape_controls(label).ljust(width)}  " + f"\n{' ' * (width + 2)}".join(lines))


def _leave(run: Run, name: str, strict: bool) -> None:
    """Say where it is, and end as the outcome asks for."""
    result = run.scored_result
    where = run.path or Path(run.name)
    click.echo(
        f"run written to {escape_controls(str(where))}; open {escape_controls(str(where / 'report.html'))}", err=True
    )
    judge = result.judges[name]
    if judge["stopped"]:
        raise WorldError(f"{where}: stopped: {judge['stopped']}; run the same command again to go on")
    _check_any(judge, str(where))
    leave_if_dipping(result, strict)


def _check_any(judge: Any, where: str) -> None:
    """A judge that gave no verdict at all is a failure of the world."""
    if judge["n_verdicts"] and judge["n_failed"] == judge["n_verdicts"]:
        raise WorldError(f"{where}: every call to the judge failed: {judge['error']}; --retry-errors asks again")
    if judge["n_verdicts"] and judge["n_unread"] + judge["n_failed"] == judge["n_verdicts"]:
        raise WorldError(
            f"{where}: no reply of the judge holds a verdict: look at one in verdicts.parquet; --choose needs no reply"
        )


def _show_preference(found: Preference, as_json: bool) -> None:
    if as_json:
        import orjson

        click.echo(orjson.dumps(found.to_dict(), option=orjson.OPT_INDENT_2))
        return

    click.echo("\n".join(judge.preference_lines(found, style)))
