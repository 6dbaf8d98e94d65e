"""Runs of programs: how cases were executed, which are flaky, and which runs belong together.

`kofn verify` writes DIR/SUBMISSION/CHECKPOINT for every submission, and DIR/set for several of them. Runs are matched
by these names within the viewer's folder; a run outside it is not linked to.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kofn.analysis.series import case_histories
from kofn.core.format import MB, format_count, format_duration
from kofn.errors import InputError
from kofn.problems.verification_runs import SET, plain_name
from kofn.render.run_summary import cut_text
from kofn.runs.files import MANIFEST, read_json
from kofn.runs.index import load_stored
from kofn.viewer.templating import run_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.analysis.series import CaseHistory
    from kofn.viewer.run_list import RunLine
    from kofn.viewer.run_view import RunView
    from kofn.viewer.server import Viewer

PART = ".part"  # suffix of a run of some of the cases
MAX_RUNS = 20  # other runs of a program that are read to find flaky cases
MAX_FLAKY = 20
MAX_SUBMISSIONS = 200
MAX_LINKS = 8
_MAX_TEXT = 200


# --- how programs were executed


def execution_facts(view: RunView) -> list[tuple[str, str, str]]:
    """(what, value, detail), from the manifest."""
    verify, sources = verification(view), view.run.manifest.get("sources")
    first = sources[0] if isinstance(sources, list) and sources and isinstance(sources[0], dict) else {}
    entry, repeats, limits = verify.get("entry"), verify.get("repeats"), verify.get("limits")
    seconds, memory = (limits.get(name) if isinstance(limits, dict) else None for name in ("seconds", "memory"))
    source = f"{first.get('path') or ''} {str(first.get('sha256') or '')[:12]}".strip()
    times = "" if not isinstance(repeats, int) else "once" if repeats == 1 else f"{repeats:,} times"
    limit = format_duration(seconds) if isinstance(seconds, int | float) else ""
    facts = [
        *((name, verify.get(name), f"version {verify.get(f'{name}_version')}") for name in ("problem", "checkpoint")),
        ("submission", verify.get("submission"), source),
        ("entry", " ".join(map(str, entry)) if isinstance(entry, list) else entry, verify.get("adapter")),
        ("sandbox", verify.get("sandbox"), ""),
        ("python", str(verify.get("python") or "").partition(" ")[0], ""),
        ("time limit", limit, "of a case, unless it says another"),
        ("memory limit", f"{memory / MB:,.0f} MB" if isinstance(memory, int) else "", ""),
        ("every case was run", times, verify.get("part")),
    ]
    return [
        (what, cut_text(str(value), _MAX_TEXT), cut_text(str(detail or ""), _MAX_TEXT))
        for what, value, detail in facts
        if value
    ]


def verification(view: RunView) -> dict[str, Any]:
    """What the manifest says of how programs were executed; nothing where it is malformed, or a run of outputs."""
    verify = view.run.manifest.get("verify")
    return verify if isinstance(verify, dict) else {}


# --- flaky cases


def flaky_cases(viewer: Viewer, view: RunView) -> dict[str, Any]:
    """Cases that passed at some times and failed at others: within this run, or in runs of the same program.

    `rows` are the cases; `runs` how many runs were compared, this one among them; `more` the cases left out.
    """
    names = same_program(viewer, view)
    histories = {h.case: h for h in _histories(viewer, view, names)}
    times = {}  # how often each case passed that was flaky within this run
    for row in view.flaky.nonzero()[0].tolist():
        attributes = {entry["attribute"]: entry["value"] for entry in view.run.reports["case"][row]}
        times[row] = f"{attributes.get('times_passed', '?')} of {attributes.get('times_run', '?')}"
    flaky = []
    for row, key in enumerate(view.keys):
        history, within = histories.get(key), times.get(row)
        if within is not None or (history is not None and history.flips):
            flaky.append((row, within, history if history is not None and history.runs > 1 else None))
    flaky.sort(key=lambda case: (-(case[2].flips if case[2] else 0), case[0]))
    rows = [
        {
            "row": row,
            "id": view.scores["id"][row],
            "group": view.scores["group"][row],
            "times": within,
            "runs": f"{history.passes:,} of {history.runs:,}" if history is not None else None,
        }
        for row, within, history in flaky[:MAX_FLAKY]
    ]
    return {"rows": rows, "runs": len(names) + 1, "more": len(flaky) - len(rows)}


def _histories(viewer: Viewer, view: RunView, names: Sequence[str]) -> list[CaseHistory]:
    runs = []
    for name in (view.name, *names):
        with suppress(InputError, OSError):  # gone meanwhile, or damaged: its own page says so
            runs.append(load_stored(viewer.folder.root / name))
    runs.sort(key=lambda run: run.when)
    return case_histories([(run.cases, run.verdicts) for run in runs]) if len(runs) > 1 else []


def same_program(viewer: Viewer, view: RunView) -> list[str]:
    """Other runs of the same program against the same version of the checkpoint, newest first."""
    key, verify = program_key(view.run.manifest), verification(view)
    if key is None:
        return []
    lines = [
        line
        for line in sorted(viewer.recent.lines().values(), key=lambda line: line.when, reverse=True)
        if line.kind == "verify" and line.problem == verify["problem"] and line.model == verify["submission"]
    ]
    names = []
    for line in lines[: 10 * MAX_RUNS]:  # a bound on the manifests that are read for one page
        with suppress(InputError, OSError):
            if line.name != view.name and program_key(read_json(viewer.folder.root / line.name / MANIFEST)) == key:
                names.append(line.name)
        if len(names) == MAX_RUNS:
            break
    return names


def program_key(manifest: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """What two runs of the same program and cases have in common; None where the manifest does not say it."""
    verify, sources = manifest.get("verify"), manifest.get("sources")
    if not isinstance(verify, dict) or not isinstance(sources, list) or len(sources) != 1:
        return None
    digest = sources[0].get("sha256") if isinstance(sources[0], dict) else None
    names = ("problem", "problem_version", "checkpoint", "checkpoint_version", "submission")
    return (digest, *(verify.get(name) for name in names)) if digest else None


# --- runs that belong together


def is_set(view: RunView) -> bool:
    """Whether the candidates are submissions."""
    run = view.run
    return run.result is not None and run.evaluation.name == SET and _base_name(view.name) in (SET, SET + PART)


def _base_name(name: str) -> str:
    return name.rpartition("/")[2]


def _parent(name: str) -> str:
    """The folder of a run, with a slash, or nothing.

    >>> _parent("a/b/set"), _parent("set")
    ('a/b/', '')
    """
    parent = name.rpartition("/")[0]
    return f"{parent}/" if parent else ""


def submissions(viewer: Viewer, view: RunView) -> dict[str, Any] | None:
    """The submissions of a set at every checkpoint, each with its own run; None where no run of one is there."""
    if not is_set(view):
        return None
    part = PART if _base_name(view.name) == SET + PART else ""
    names = [case.partition("/")[2] or case for case in view.scores["id"].to_list()]
    columns = {f"{plain_name(name)}{part}": i for i, name in enumerate(names)}
    parent = _parent(view.name)
    runs: dict[str, list[RunLine | None]] = {}
    for line in viewer.recent.lines().values():
        submission, slash, checkpoint = line.name.removeprefix(parent).partition("/")
        if line.kind == "verify" and line.name.startswith(parent) and slash and checkpoint in columns:
            runs.setdefault(submission, [None] * len(names))[columns[checkpoint]] = line
    if not runs:
        return None
    rows = sorted(runs.items())
    return {"checkpoints": names, "rows": rows[:MAX_SUBMISSIONS], "more": max(0, len(rows) - MAX_SUBMISSIONS)}


def candidate_runs(viewer: Viewer, view: RunView, row: int) -> dict[int, tuple[str, str]]:
    """(name, URL) of the run of each candidate of a set, by its number; a text begins with its submission's name."""
    table = submissions(viewer, view) if view.has_texts else None
    if table is None:
        return {}
    lines = {name: of_submission[row] for name, of_submission in table["rows"]}
    runs = {}
    for number, text in enumerate(view.candidates(row)["text"], 1):
        fits = [name for name in lines if text is not None and text.startswith(f"{name}: ")]
        name = max(fits, key=len, default="")  # the longest: a name may hold ": " and another name
        line = lines.get(name)
        if line is not None:
            runs[number] = (name, run_url(line.name))
    return runs


def related_links(viewer: Viewer, view: RunView) -> list[tuple[str, str]]:
    """(title, URL) from a submission at a checkpoint to its other checkpoints, and to the set."""
    verify, parent = verification(view), _parent(view.name)
    # a run at the root has no submission of its own: the others there are other submissions'
    if view.run.result is not None or not verify or not parent:
        return []
    lines = viewer.recent.lines()
    others = [
        line
        for line in lines.values()
        if _parent(line.name) == parent and line.name != view.name
        if line.kind == "verify" and line.problem == verify["problem"]
    ]
    links = [(f"Checkpoint {_base_name(line.name)}", run_url(line.name)) for line in others[:MAX_LINKS]]
    whole_set = f"{_parent(parent.rstrip('/'))}{SET}{PART if view.name.endswith(PART) else ''}"
    return [*([("Set of submissions", run_url(whole_set))] if whole_set in lines else []), *links]


def page_sections(viewer: Viewer, view: RunView) -> dict[str, Any]:
    """What the page of a run shows beyond report.html."""
    if view.run.result is not None:
        return {"submissions": submissions(viewer, view), "executed": [], "flaky": None}
    flaky, repeats = flaky_cases(viewer, view), verification(view).get("repeats")
    searched = []  # in which executions flaky cases were looked for
    if isinstance(repeats, int) and repeats > 1:
        searched.append(f"{repeats:,} times in this run")
    if flaky["runs"] > 1:
        searched.append(f"in {format_count(flaky['runs'], 'run')} of the same program in this folder")
    end = "." if flaky["rows"] else ": no case passed at some times and failed at others."
    words = f"Every case was executed {' and '.join(searched)}{end}" if searched else ""
    return {"submissions": None, "executed": execution_facts(view), "flaky": flaky, "flaky_words": words}
