"""What can be taken away from the viewer: the run as one page, its tables as CSV and Parquet, the list of runs."""

from __future__ import annotations

import tempfile
import threading
from dataclasses import fields
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kofn.diagnose import counted
from kofn.errors import WorldError
from kofn.report.evaluation import REPORTS
from kofn.report.files import CANDIDATES, CASES, PAGE
from kofn.report.frames import flat_frame
from kofn.web import shell
from kofn.web.cases import chosen
from kofn.web.folder import Absent, address
from kofn.web.run_page import crumbs_of, wanted_of
from kofn.web.tables import CSV, HTML, PARQUET, OfFile, attached, csv_of, opened, parquet_of, slices, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import Response

    from kofn.web.app import Viewer
    from kofn.web.browsed import Browsed
    from kofn.web.cases import Wanted
    from kofn.web.tables import Ints

LARGE = 8_000_000  # bytes of candidates on disk, from which on a page of the whole run is made in another process
PIECE = 2_000  # cases of a table in memory that become CSV at once
_one_at_a_time = threading.Lock()  # a page holds the texts of a run


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page that lists what there is."""
    one = viewer.shelf.get(name)
    wanted = wanted_of(request)
    query = wanted.query(page=1)
    n = len(chosen(one, wanted).rows) if query else one.n
    return shell.page(
        "export.html.j2",
        title=f"Export {name}",
        crumbs=crumbs_of(name, ("export", f"{address(name, 'export')}{query}")),
        run=name,
        found=counted(n, "case") if n == one.n else f"{n:,} of {counted(one.n, 'case')}",
        filtered=bool(query),
        exports=list(_exports(one, query)),
        where=str(one.path),
    )


def _exports(one: Browsed, query: str) -> Iterator[dict[str, Any]]:
    """Everything that can be saved: what, in which forms."""

    def links(*names: str) -> list[tuple[str, str]]:
        known = {"csv": "CSV", "parquet": "Parquet", "html": "HTML"}
        plain = (PAGE, REPORTS)  # never filtered
        return [(known[n.rpartition(".")[2]], f"{address(one.name, n)}{'' if n in plain else query}") for n in names]

    yield {
        "what": "The run as one page",
        "told": "numbers, charts and cases in one file that opens without a network; of a large run the first cases",
        "links": links(PAGE),
    }
    if one.table is not None:
        told = "a row a candidate: its text, answer, cost, scores and verdicts"
        yield {"what": "Candidates", "told": told, "links": links("candidates.csv", CANDIDATES)}
        told = "a row a case: input, reference, tags, and its value under every aggregator"
        yield {"what": "Cases", "told": told, "links": links("cases.csv", CASES)}
    else:
        told = "a row a case: group, type, score, verdict, time"
        yield {"what": "Cases", "told": told, "links": links("cases.csv", CASES)}
        told = "a row a case and attribute: expected, actual and their difference"
        yield {"what": "Attributes", "told": told, "links": links("attributes.csv")}
    told = "what was verified of every case, nested, as the run keeps it"
    yield {"what": "Case reports", "told": told, "links": links(REPORTS)}


# --- one run


def report(viewer: Viewer, request: Request, name: str) -> Response:
    """report.html, made again."""
    one = viewer.shelf.get(name)  # what cannot be read is told at once, without its texts
    if request.method == "HEAD":
        return attached(viewer, request, iter(()), _file(one.path, PAGE), HTML)
    with _one_at_a_time:
        pieces = _page_elsewhere(one.path) if _is_large(one) else _page_here(one.path)
    return attached(viewer, request, pieces, _file(one.path, PAGE), HTML, pieces.size)


def _is_large(one: Browsed) -> bool:
    path = one.file(CANDIDATES)
    return one.table is not None and path.stat().st_size > LARGE


def _page_here(path: Path) -> OfFile:
    from kofn.report.html import page
    from kofn.report.run import load_run

    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is sent
    file.write(page(load_run(path)).encode("utf-8", "replace"))
    return _from_start(file)


def _page_elsewhere(path: Path) -> OfFile:
    """In a process of its own: the texts of a large run are read for it, and their memory is given back."""
    import subprocess
    import sys

    script = (
        "import sys; from kofn.report.html import page; from kofn.report.run import load_run; "
        "sys.stdout.buffer.write(page(load_run(sys.argv[1])).encode('utf-8', 'replace'))"
    )
    file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is sent
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)  # noqa: S603 - our own words
    if done.returncode:
        file.close()
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise WorldError(f"the page cannot be made: {last[:300]}")
    return _from_start(file)


def _from_start(file: IO[bytes]) -> OfFile:
    file.flush()
    file.seek(0)
    return OfFile(file)


def candidates_csv(viewer: Viewer, request: Request, name: str) -> Response:
    one, path = _table(viewer, name, CANDIDATES)
    pieces = csv_of(slices(path, _candidate_rows(one, wanted_of(request))))
    return attached(viewer, request, pieces, _file(one.path, "candidates.csv"), CSV)


def candidates_parquet(viewer: Viewer, request: Request, name: str) -> Response:
    one, path = _table(viewer, name, CANDIDATES)
    return _parquet(viewer, request, path, _candidate_rows(one, wanted_of(request)))


def cases_csv(viewer: Viewer, request: Request, name: str) -> Response:
    one = viewer.shelf.get(name)
    rows = _case_rows(one, wanted_of(request))
    if one.table is None:
        frames = _cut(one.scores if rows is None else one.scores[rows])
    else:
        frames = slices(_table(viewer, name, CASES)[1], rows)
    return attached(viewer, request, csv_of(frames), _file(one.path, "cases.csv"), CSV)


def cases_parquet(viewer: Viewer, request: Request, name: str) -> Response:
    one = viewer.shelf.get(name)
    rows = _case_rows(one, wanted_of(request))
    if one.table is not None:
        return _parquet(viewer, request, _table(viewer, name, CASES)[1], rows)
    pieces = written((one.scores if rows is None else one.scores[rows]).lazy())
    return attached(viewer, request, pieces, _file(one.path, CASES), PARQUET, pieces.size)


def attributes_csv(viewer: Viewer, request: Request, name: str) -> Response:
    """A row a case and attribute, as `kofn report --csv` has it."""
    one = viewer.shelf.get(name)
    if one.table is not None:
        raise Absent("the cases of this run are sets of outputs: they have no attributes of a program")
    rows = _case_rows(one, wanted_of(request))
    frames = _cut(one.run.reports if rows is None else one.run.reports[rows])
    pieces = (flat_frame(frame).write_csv(include_header=i == 0).encode() for i, frame in enumerate(frames))
    return attached(viewer, request, pieces, _file(one.path, "attributes.csv"), CSV)


def reports_parquet(viewer: Viewer, request: Request, name: str) -> Response:
    return _parquet(viewer, request, viewer.shelf.get(name).file(REPORTS), None)


def _parquet(viewer: Viewer, request: Request, path: Path, rows: Ints | None) -> Response:
    """A table of the run: as it is on disk, or some of its rows."""
    pieces = opened(path) if rows is None else parquet_of(path, rows)
    return attached(viewer, request, pieces, _file(path.parent, path.name), PARQUET, pieces.size)


def _table(viewer: Viewer, name: str, file: str) -> tuple[Browsed, Path]:
    one = viewer.shelf.get(name)
    if one.table is None:
        raise Absent("this run has no candidates: its cases are those of a program")
    return one, one.file(file)


def _case_rows(one: Browsed, wanted: Wanted) -> Ints | None:
    """The cases that are asked for, in order; None for all as they are."""
    return chosen(one, wanted).rows if wanted.query(page=1) else None


def _candidate_rows(one: Browsed, wanted: Wanted) -> Ints | None:
    """The candidates of these cases, in the order of the run."""
    cases = _case_rows(one, wanted)
    if cases is None or len(cases) == one.n:
        return None
    assert one.sets is not None
    kept = np.zeros(one.n, dtype=bool)
    kept[cases] = True
    return np.flatnonzero(np.repeat(kept, one.sets.sizes))


def _cut(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """A table in pieces; one without rows is one piece."""
    yield from (frame[low : low + PIECE] for low in range(0, max(1, frame.height), PIECE))


def _file(run: Path, what: str) -> str:
    """What a file of a run is called where it is saved."""
    return f"{run.name}-{what}"


# --- the list


def runs_csv(viewer: Viewer, request: Request) -> Response:
    return attached(viewer, request, csv_of(iter([_runs(viewer, request)])), "runs.csv", CSV)


def runs_parquet(viewer: Viewer, request: Request) -> Response:
    pieces = written(_runs(viewer, request).lazy())
    return attached(viewer, request, pieces, "runs.parquet", PARQUET, pieces.size)


def _runs(viewer: Viewer, request: Request) -> pl.DataFrame:
    """A row a run, as the list shows them."""
    from kofn.web.listing import Line
    from kofn.web.listing import chosen as chosen_lines
    from kofn.web.runs_page import asked_of

    found = chosen_lines(viewer.listing.lines(), asked_of(request.query_params))
    numbers = dict.fromkeys(("point", "low", "high", "cost"), pl.Float64) | dict.fromkeys(
        ("cases", "candidates", "missing"), pl.Int64
    )
    schema = {f.name: pl.List(pl.String) if f.name == "tags" else numbers.get(f.name, pl.String) for f in fields(Line)}
    return pl.DataFrame(
        {name: [_plain(getattr(line, name)) for line in found] for name in schema}, schema=schema, strict=False
    )


def _plain(value: Any) -> Any:
    """A value that a table can hold: names of files may be no UTF-8."""
    if isinstance(value, tuple):
        return [_plain(v) for v in value]
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value
