"""What is found in run directories of earlier schemas, as plain numbers: tests compare it with what was found before.

python -m tests.runs.older_runs 2 > facts.json      # what the present code finds in the fixtures of schema 2
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import orjson
import polars as pl
from click.testing import CliRunner
from tests.viewer.serving import ask, served

import kofn
from kofn.cli import kofn as command
from kofn.judge import JudgeSettings, judge
from kofn.viewer.server import RUN_PAGES
from kofn.viewer.templating import run_url

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[1] / "fixtures"
ESTIMATE = ("metric", "aggregator", "segment", "point", "low", "high", "n", "n_missing")
COMPARISON = ("metric", "aggregator", "segment", "a", "b", "difference", "low", "high", "wins", "losses", "n")
CURVE = ("k", "n", "any", "any_low", "any_high", "majority", "selected", "cost", "tokens", "seconds")


def unpack(schema: int, folder: Path) -> Path:
    """The run directories of one schema, in a folder of their own."""
    with tarfile.open(FIXTURES / f"schema{schema}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / f"schema{schema}"


def call(*args: object, exits: tuple[int, ...] = (0,)) -> str:
    """What a verb prints; it ends as it should."""
    done = CliRunner().invoke(command, [str(arg) for arg in args], catch_exceptions=False)
    assert done.exit_code in exits, (args, done.exit_code, done.stderr)
    return done.stdout


def as_json(*args: object, exits: tuple[int, ...] = (0,)) -> Any:
    return orjson.loads(call(*args, "--json", exits=exits))


def rows_of(found: list[dict[str, Any]], names: tuple[str, ...]) -> list[list[Any]]:
    return [[rounded(row[name]) for name in names] for row in found]


def rounded(value: Any) -> Any:
    """To ten digits: sums in another order may differ in the last ones."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def report(run: Path) -> Any:
    found = as_json("report", run)
    names = ("problem_name", "pass_counts", "total_counts", "policy", "verdict", "n_unverified", "score")
    groups = {name: group["results"] for name, group in found["group_outcomes"].items()}
    return {
        **{n: rounded(found[n]) for n in names},
        "groups": groups,
        "estimates": rows_of(found["estimates"], ESTIMATE),
    }


def check(run: Path) -> Any:
    found = as_json("check", run, exits=(0, 1))
    return {"passed": found["passed"], "n": len(found["checks"])}


def compare(run: Path) -> Any:
    return rows_of(as_json("compare", run.parent / "baseline", run)["comparisons"], COMPARISON)


def compare_graders(run: Path) -> Any:
    found = as_json("compare", run, "--extractors", "number", "number_simple")
    return rows_of(found["comparisons"], COMPARISON), found["graders"][0]["agreement"]


def curve(run: Path) -> Any:
    return rows_of(as_json("curve", run)["curve"], CURVE)


def plan(run: Path) -> Any:
    return {k: rounded(v) for k, v in as_json("plan", run, "--width", "0.2")["variances"].items()}


def extract_audit(run: Path) -> Any:
    found = as_json("extract-audit", run)
    return {k: found[k] for k in ("extractors", "n", "n_failed", "n_disagreements")}


def rescore(run: Path) -> Any:
    """Graded again into a new run, which then opens like any other."""
    out = run.parent / f"{run.name}-again"
    found = as_json("score", run, "--extract", "number_simple", "--out", out)
    again = report(out)
    assert again["estimates"] == rows_of(found["estimates"], ESTIMATE)
    return {"estimates": again["estimates"], "changes": [change["n"] for change in found["parent"]["changes"]]}


def texts(run: Path) -> Any:
    """Every text of every candidate, as an export has them and as the object has them."""
    path = run.parent / f"{run.name}.parquet"
    call("export", run, "--to", path, "--force")
    frame = pl.read_parquet(path)
    result = kofn.load_run(run).result
    assert result is not None
    assert result.table is not None
    assert result.table.candidates["text"].to_list() == frame["output"].to_list()
    digest = sha256(frame.write_json().encode()).hexdigest()
    return {"columns": frame.columns, "rows": frame.height, "sha256": digest}


def exports(run: Path) -> Any:
    sizes = {}
    for ending in ("jsonl", "csv", "inspect.json", "eee.json"):
        path = run.parent / f"{run.name}.{ending}"
        call("export", run, "--to", path)
        sizes[ending] = path.stat().st_size > 0
    return sizes


def judged(run: Path) -> Any:
    """Judged in place: the directory is written again, and everything of before is still there."""
    rubric = {"name": "long_enough", "prompt": "{output}"}
    judge(run, rubric, JudgeSettings(models=(lambda prompt: "Verdict: " + ("pass" if len(prompt) > 20 else "fail"),)))
    return report(run)


def trend(folder: Path) -> Any:
    found = as_json("trend", folder)
    assert found["left_out"] == []
    series = {(task["task"], one["aggregator"]): one for task in found["tasks"] for one in task["series"]}
    return {
        f"{task}: {name}": sorted((Path(r["run"]).name, rounded(r["point"])) for r in one["runs"])
        for (task, name), one in series.items()
    }


def programs(run: Path) -> Any:
    full = kofn.load_run(run).full()
    return {
        report.id: {name: [a.is_correct, a.weight, a.expected, a.actual, a.diff] for name, a in report.results.items()}
        for report in full.reports
    }


def pages(run: Path) -> Any:
    """What the viewer answers on every page of a run, and whether its case pages show the texts."""
    root = next(parent for parent in run.parents if parent.name.startswith("schema"))
    name = str(run.relative_to(root))
    case = kofn.load_run(run).reports["id"][0]
    with served(root) as base:
        assert name.partition("/")[0] in ask(base, "/rows").text
        statuses = {page: ask(base, page).status for page in ("/", "/rows", "/runs.csv", "/runs.parquet", "/trend")}
        for page in RUN_PAGES:
            if page not in ("live", "events"):  # of runs that are going on
                query = f"?{urlencode({'id': case})}" if page in ("case", "labels.json") else ""
                statuses[page] = ask(base, run_url(name, page) + query).status
        shown = ask(base, run_url(name, "case") + f"?{urlencode({'id': case})}").text
    return {"statuses": statuses, "case": "answer is" in shown or "lorem ipsum" in shown}


ALL: tuple[Callable[[Path], Any], ...] = (report, check, curve, plan, texts, exports, pages)
NUMBERS = (*ALL, compare_graders, extract_audit, rescore)
LOOKS: dict[str, tuple[Callable[[Path], Any], ...]] = {
    "scored": (*NUMBERS, compare, programs),
    "baseline": NUMBERS,
    "texts": (*ALL, programs, judged),
    "generated": (*NUMBERS, programs),
    "judged": (*ALL, judged),
    "programs/set": (report, check, curve, pages),
    "programs/partial/basics": (report, check, programs, pages),
    "programs/right/basics": (report, check, programs, pages),
    "functions": ALL,
}


def facts(look: Callable[[Path], Any], path: Path) -> Any:
    """What one look finds, as JSON would have it."""
    return orjson.loads(orjson.dumps(look(path)))


def names(root: Path) -> list[tuple[str, Callable[[Path], Any]]]:
    """What there is to look at."""
    return [(run, look) for run, looks in LOOKS.items() for look in looks if (root / run).exists()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        root = unpack(int(sys.argv[1]), Path(temporary))
        found = {"trend": facts(trend, root)}
        found |= {f"{run} {look.__name__}": facts(look, root / run) for run, look in names(root)}
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in sorted(found.items())]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
