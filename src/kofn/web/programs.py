"""Programs against checkpoints: what is wrong in a case, how it was run, what is flaky, which runs belong together.

`kofn verify` writes DIR/SUBMISSION/CHECKPOINT for every submission, and DIR/set for several of them. Names are taken
from the folder that is looked at; what is not in it is not linked to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import polars as pl

from kofn.checkpoint.write import EXECUTIONS, SET, plain_name
from kofn.diagnose import counted
from kofn.errors import InputError
from kofn.report.casedata import reasons
from kofn.report.files import MANIFEST, check_whole, read_json
from kofn.report.findings import cut_text, duration
from kofn.web.folder import address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.trends import History
    from kofn.web.app import Viewer
    from kofn.web.browsed import Bools, Browsed
    from kofn.web.listing import Line

PART = ".part"  # the end of a name that a part of the cases has
MOST_RUNS = 20  # other runs of a program that are read, to see what is flaky
MOST_FLAKY = 20
MOST_TIMES = 20  # executions of a case on one page
MOST_SUBMISSIONS = 200
MOST_WAYS = 8
_NAME = 200
_MB = 1 << 20


# --- cases


def failing(one: Browsed, rows: Any) -> list[str]:
    """Of these cases the first attribute that is wrong and the first thing that differs; nothing of those that pass."""
    flat = one.run.reports.select("results")[rows].with_row_index("row")
    flat = flat.filter(pl.col("results").list.len() > 0).explode("results").unnest("results")
    return reasons(flat, len(rows))


def told_of(one: Browsed, attribute: str, *values: str) -> Bools:
    """Which cases' reports tell this of how they were executed; of no values, anything at all."""
    fact = pl.element().struct
    named = fact.field("attribute") == attribute
    fits = named & fact.field("value").is_in(values) if values else named
    found = one.run.reports.select(pl.col("case").list.eval(fits).list.any().fill_null(value=False))
    return found.to_series().to_numpy().astype(bool)


def executions(one: Browsed, row: int) -> list[dict[str, Any]]:
    """Every time that a case was executed, as far as the run says: how it ended, what it used and wrote."""
    path = one.file(EXECUTIONS)
    if one.sets is not None or not path.is_file():
        return []
    check_whole(path)
    group, case = one.scores["group"][row], one.scores["id"][row]
    wanted = (pl.col("group") == group) & (pl.col("case_id") == case)
    try:
        rows = pl.scan_parquet(path, glob=False).filter(wanted).head(MOST_TIMES + 1).collect()
    except pl.exceptions.PolarsError:
        return []
    return [_execution(i, found) for i, found in enumerate(rows.iter_rows(named=True), 1)]


def _execution(number: int, found: Mapping[str, Any]) -> dict[str, Any]:
    signs = {True: ("pass", "pass"), False: ("fail", "fail"), None: ("none", "not verified")}
    sign, words = signs[found.get("passed")]
    return {
        "number": number,
        "sign": sign,
        "words": words,
        "facts": list(_used(found)),
        "stopped": found.get("stopped"),
        "harness": found.get("harness"),
        "output": found.get("output"),
        "stderr": found.get("stderr"),
    }


def _used(found: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if found.get("status_code") is not None:
        yield "exit status", str(found["status_code"])
    if found.get("seconds") is not None:
        yield "took", duration(found["seconds"])
    if found.get("cpu_seconds") is not None:
        yield "CPU", duration(found["cpu_seconds"])
    if found.get("peak_memory"):
        yield "memory", f"{found['peak_memory'] / _MB:,.1f} MB"


# --- what the run says of how it executed programs


def execution_facts(one: Browsed) -> list[tuple[str, str, str]]:
    """(what, value, more of it), from the manifest."""
    told = one.run.manifest.get("verify")
    if not isinstance(told, dict):
        return []
    versions = {name: told.get(f"{name}_version") for name in ("problem", "checkpoint")}
    found = [
        *((name, told.get(name), f"version {version}") for name, version in versions.items()),
        ("submission", told.get("submission"), _source(one)),
        ("entry", _joined(told.get("entry")), told.get("adapter")),
        ("sandbox", told.get("sandbox"), ""),
        ("python", str(told.get("python") or "").partition(" ")[0], ""),
        *_limits(told.get("limits")),
        ("every case was run", _times(told.get("repeats")), told.get("part")),
    ]
    return [
        (what, cut_text(str(value), _NAME), cut_text(str(more or ""), _NAME)) for what, value, more in found if value
    ]


def _source(one: Browsed) -> str:
    sources = one.run.manifest.get("sources")
    first = sources[0] if isinstance(sources, list) and sources and isinstance(sources[0], dict) else {}
    return " ".join(filter(None, (str(first.get("path") or ""), str(first.get("sha256") or "")[:12])))


def _joined(words: Any) -> str:
    return " ".join(map(str, words)) if isinstance(words, list) else str(words or "")


def _limits(limits: Any) -> Iterator[tuple[str, str, str]]:
    if not isinstance(limits, dict):
        return
    if isinstance(limits.get("seconds"), int | float):
        yield "time limit", duration(limits["seconds"]), "of a case, unless it says another"
    if isinstance(limits.get("memory"), int):
        yield "memory limit", f"{limits['memory'] / _MB:,.0f} MB", ""


def _times(repeats: Any) -> str:
    return "" if not isinstance(repeats, int) else "once" if repeats == 1 else f"{repeats:,} times"


# --- flaky cases


def flaky_cases(viewer: Viewer, one: Browsed) -> dict[str, Any]:
    """Cases that passed at some times and failed at others: within this run, or in runs of the same program.

    `rows` are the cases; `runs` how many runs were looked at, this one among them; `more` the cases left out.
    """
    names = same_program(viewer, one)
    across = {h.case: h for h in _histories(viewer, one, names)}
    keys = case_keys(one)
    times = _times_of(one)
    found = []
    for row in range(one.n):
        history, within = across.get(keys[row]), times.get(row)
        if within is not None or (history is not None and history.flips):
            found.append((row, within, history if history is not None and history.runs > 1 else None))
    found.sort(key=lambda f: (-(f[2].flips if f[2] else 0), f[0]))
    rows = [
        {
            "row": row,
            "id": one.scores["id"][row],
            "group": one.scores["group"][row],
            "times": within,
            "runs": f"{history.passes:,} of {history.runs:,}" if history is not None else None,
        }
        for row, within, history in found[:MOST_FLAKY]
    ]
    return {"rows": rows, "runs": len(names) + 1, "more": len(found) - len(rows)}


def _times_of(one: Browsed) -> dict[int, str]:
    """Of the cases that this run found flaky, how often they passed."""
    found = {}
    for row in one.flaky.nonzero()[0].tolist():
        told = {fact["attribute"]: fact["value"] for fact in one.run.reports["case"][row]}
        found[row] = f"{told.get('times_passed', '?')} of {told.get('times_run', '?')}"
    return found


def case_keys(one: Browsed) -> list[str]:
    """What a case is called through runs: its id, or with its group where ids are there twice."""
    ids = one.scores["id"]
    if ids.n_unique() == len(ids):
        return ids.to_list()
    return [f"{group} / {case}" for group, case in one.scores.select("group", "id").iter_rows()]


def _histories(viewer: Viewer, one: Browsed, names: Sequence[str]) -> list[History]:
    from kofn.report.past import load_past
    from kofn.trends import histories

    runs = []
    for name in (one.name, *names):
        with suppress(InputError, OSError):  # gone meanwhile, or damaged: its own page says so
            runs.append(load_past(viewer.folder.root / name))
    runs.sort(key=lambda run: run.when)
    return histories([(run.cases, run.verdicts) for run in runs]) if len(runs) > 1 else []


def same_program(viewer: Viewer, one: Browsed) -> list[str]:
    """Other runs of the same program against the same version of the checkpoint, newest first."""
    own = identity(one.run.manifest)
    if own is None:
        return []
    told = one.run.manifest["verify"]
    lines = [
        line
        for line in viewer.watch.lines().values()
        if line.kind == "verify" and line.problem == told["problem"] and line.model == told["submission"]
    ]
    lines.sort(key=lambda line: line.when, reverse=True)
    found = []
    for line in lines[: 10 * MOST_RUNS]:
        with suppress(InputError, OSError):
            if line.name != one.name and identity(read_json(viewer.folder.root / line.name / MANIFEST)) == own:
                found.append(line.name)
        if len(found) == MOST_RUNS:
            break
    return found


def identity(manifest: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What makes two runs those of the same program and cases; None where that cannot be told."""
    told, sources = manifest.get("verify"), manifest.get("sources")
    if not isinstance(told, dict) or not isinstance(sources, list) or len(sources) != 1:
        return None
    digest = sources[0].get("sha256") if isinstance(sources[0], dict) else None
    names = ("problem", "problem_version", "checkpoint", "checkpoint_version", "submission")
    return (digest, *(told.get(name) for name in names)) if digest else None


# --- runs that belong together


def is_set(one: Browsed) -> bool:
    """Whether the candidates are submissions."""
    return one.run.result is not None and one.run.evaluation.name == SET and _last(one.name) in (SET, SET + PART)


def _last(name: str) -> str:
    return name.rpartition("/")[2]


def _above(name: str) -> str:
    """The folder above, with a slash, or nothing.

    >>> _above("a/b/set"), _above("set")
    ('a/b/', '')
    """
    above = name.rpartition("/")[0]
    return f"{above}/" if above else ""


def submissions(viewer: Viewer, one: Browsed) -> dict[str, Any] | None:
    """The submissions of a set at every checkpoint, each with its own run; None where none is in the folder."""
    if not is_set(one):
        return None
    part = PART if _last(one.name) == SET + PART else ""
    names = [case.partition("/")[2] or case for case in one.scores["id"].to_list()]
    places = {f"{plain_name(name)}{part}": i for i, name in enumerate(names)}
    above = _above(one.name)
    found: dict[str, list[Line | None]] = {}
    for line in viewer.watch.lines().values():
        submission, slash, checkpoint = line.name.removeprefix(above).partition("/")
        if line.kind == "verify" and line.name.startswith(above) and slash and checkpoint in places:
            found.setdefault(submission, [None] * len(names))[places[checkpoint]] = line
    if not found:
        return None
    rows = sorted(found.items())
    return {"checkpoints": names, "rows": rows[:MOST_SUBMISSIONS], "more": max(0, len(rows) - MOST_SUBMISSIONS)}


def own_runs(viewer: Viewer, one: Browsed, row: int, texts: Sequence[str | None]) -> dict[int, tuple[str, str]]:
    """(name, address) of the run of each candidate of a set: a candidate's text begins with its submission's name."""
    known = submissions(viewer, one)
    if known is None:
        return {}
    lines = {name: of[row] for name, of in known["rows"]}
    found = {}
    for k, text in enumerate(texts):
        fits = [name for name in lines if text is not None and text.startswith(f"{name}: ")]
        line = lines[max(fits, key=len)] if fits else None
        if line is not None:
            found[k] = (max(fits, key=len), address(line.name))
    return found


def ways(viewer: Viewer, one: Browsed) -> list[tuple[str, str]]:
    """From a submission at a checkpoint to its other checkpoints, and to the set."""
    told = one.run.manifest.get("verify")
    if one.run.result is not None or not isinstance(told, dict):
        return []
    lines = viewer.watch.lines()
    above = _above(one.name)
    beside = [line for line in lines.values() if line.name.startswith(above) and _above(line.name) == above]
    others = [
        line for line in beside if line.kind == "verify" and line.name != one.name and line.problem == told["problem"]
    ]
    found = [(f"Checkpoint {_last(line.name)}", address(line.name)) for line in others[:MOST_WAYS]] if above else []
    part = PART if one.name.endswith(PART) else ""
    whole = f"{_above(above.rstrip('/'))}{SET}{part}"
    return [*([("Set of submissions", address(whole))] if above and whole in lines else []), *found]


def page_of(viewer: Viewer, one: Browsed) -> dict[str, Any]:
    """What the page of a run shows beside what report.html does."""
    if one.run.result is not None:
        return {"submissions": submissions(viewer, one), "executed": [], "flaky": None}
    flaky = flaky_cases(viewer, one)
    return {
        "submissions": None,
        "executed": execution_facts(one),
        "flaky": flaky,
        "flaky_words": _flaky_words(one, flaky),
    }


def _flaky_words(one: Browsed, flaky: Mapping[str, Any]) -> str:
    """What was looked at."""
    told = one.run.manifest.get("verify")
    repeats = told.get("repeats") if isinstance(told, dict) else None
    looked = []
    if isinstance(repeats, int) and repeats > 1:
        looked.append(f"{repeats:,} times in this run")
    if flaky["runs"] > 1:
        looked.append(f"in {counted(flaky['runs'], 'run')} of the same program in this folder")
    if not looked:
        return ""
    said = f"Every case was executed {' and '.join(looked)}"
    return f"{said}." if flaky["rows"] else f"{said}: no case passed at some times and failed at others."
