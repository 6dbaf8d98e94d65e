"""Downloads: a run as one HTML page, its tables as CSV and Parquet, and the list of runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from dataclasses import fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import anyio.to_thread
import numpy as np
import polars as pl
from starlette.responses import Response, StreamingResponse

from kofn.errors import WorldError
from kofn.judge.label_sheet import guard_formula
from kofn.judge.labels import DANGEROUS
from kofn.render.report_html import report_page
from kofn.runs.case_reports import flat_frame, json_text
from kofn.runs.files import CANDIDATES, CASES, PAGE
from kofn.runs.record import load_run
from kofn.runs.run_tables import REPORTS
from kofn.viewer.case_list import CaseQuery, select_cases
from kofn.viewer.run_folder import NotFound
from kofn.viewer.run_list import RunLine, RunQuery, filter_runs
from kofn.viewer.templating import breadcrumbs, count_of, render_page, run_url

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from kofn.viewer.server import Viewer

    Ints = np.ndarray[Any, np.dtype[np.int64]]

    from kofn.viewer.run_view import RunView

SLICE_BYTES = 2_000_000  # of a table that are in memory at once, about
FIRST_ROWS, MAX_ROWS = 200, 100_000  # of a slice, to begin with and at most
REORDERED_ROWS = 20_000  # that are brought into another order at once
CHUNK = 1 << 18
CSV, PARQUET, HTML = "text/csv; charset=utf-8", "application/vnd.apache.parquet", "text/html; charset=utf-8"
_FORMULA = "^[" + "".join(re.escape(c) for c in (*DANGEROUS, "'")) + "]"


# --- rows


def slices(path: Path, rows: Ints | None = None) -> Iterator[pl.DataFrame]:
    """The rows of a Parquet file in slices of a few megabytes: all of them, or these in this order.

    A file that is replaced meanwhile ends it with an error: halves of two runs are not a table.
    """
    stamp = _stamp(path)
    n = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    frames: Iterator[pl.DataFrame]
    if rows is not None and len(rows) > 1 and bool((np.diff(rows) <= 0).any()):
        frames = (_read_rows(path, rows[low : low + REORDERED_ROWS]) for low in range(0, len(rows), REORDERED_ROWS))
    else:
        frames = _in_order(path, n, rows)
    # first a slice without rows: a CSV of nothing has a header too
    yield pl.DataFrame(schema=pl.read_parquet_schema(path))
    for frame in frames:
        if _stamp(path) != stamp:
            raise WorldError(f"{path.name}: was written again meanwhile: ask for it again")
        yield frame


def _stamp(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _in_order(path: Path, n: int, rows: Ints | None) -> Iterator[pl.DataFrame]:
    low, step = 0, FIRST_ROWS
    while low < n:
        high = min(low + step, n)
        some = None if rows is None else rows[np.searchsorted(rows, low) : np.searchsorted(rows, high)] - low
        if some is None or len(some):
            frame = pl.scan_parquet(path, glob=False).slice(low, high - low).collect()
            # the next slice as large as memory allows, by the size of this one's rows
            step = int(min(MAX_ROWS, 4 * step, max(1, step * SLICE_BYTES / max(1, frame.estimated_size()))))
            yield frame if some is None else frame[some]
        low = high


def _read_rows(path: Path, rows: Ints) -> pl.DataFrame:
    """These rows, in this order."""
    order = np.argsort(rows, kind="stable")
    return scan_rows(path, rows[order]).collect(engine="streaming")[np.argsort(order)]


def scan_rows(path: Path, rows: Ints) -> pl.LazyFrame:
    """These rows, in the order of the file."""
    scan = pl.scan_parquet(path, glob=False)
    index = "row"
    while index in scan.collect_schema():  # a tag may have any name
        index += "_"
    selected = pl.Series(rows, dtype=pl.UInt32).implode()
    return scan.with_row_index(index).filter(pl.col(index).is_in(selected)).drop(index)


# --- CSV


def csv_chunks(frames: Iterator[pl.DataFrame]) -> Iterator[bytes]:
    """CSV of tables with the same columns, headed once."""
    for i, frame in enumerate(frames):
        yield without_formulas(frame).write_csv(include_header=i == 0).encode()


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """A table for CSV: lists as JSON, and a quote before each text or name that a spreadsheet takes for a formula.

    Numbers stay numbers.

    >>> frame = pl.DataFrame({"=a": ["=1+1", "x"], "b": [-1, 2], "c": [["y"], None]})
    >>> print(without_formulas(frame).write_csv(), end="")
    '=a,b,c
    '=1+1,-1,"[""y""]"
    x,2,
    """
    nested = [json_text(column) for column in frame.iter_columns() if column.dtype.is_nested()]
    flat = frame.with_columns(nested).with_columns(
        pl.col(pl.Binary).bin.encode("base64"), pl.col(pl.Categorical, pl.Enum).cast(pl.String)
    )
    texts = pl.col(pl.String)
    guard = pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + texts).otherwise(texts)
    return flat.with_columns(guard.name.keep()).rename(guard_formula)


# --- attachments


def disposition(name: str) -> str:
    """The Content-Disposition header for a file name of any characters (RFC 6266).

    >>> print(disposition("a b.csv"))
    attachment; filename="a_b.csv"; filename*=UTF-8''a%20b.csv
    >>> print(disposition('ä"/../x.csv'))
    attachment; filename="x.csv"; filename*=UTF-8''%C3%A4%22_.._x.csv
    """
    printable = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)[-150:]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", printable).strip("._-") or "kofn"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(printable, safe='', errors='replace')}"


def attachment(
    viewer: Viewer, request: Request, chunks: Iterator[bytes], name: str, content_type: str, size: int | None = None
) -> Response:
    """A file to be saved, sent as it is made. An error at its beginning becomes a page instead."""
    headers = {"content-disposition": disposition(name)} | ({} if size is None else {"content-length": str(size)})
    close = getattr(chunks, "close", lambda: None)
    if request.method == "HEAD":
        close()
        return Response(headers=headers, media_type=content_type)
    first = next(chunks, b"")  # before any header is sent: an error can still change the status

    async def send() -> AsyncIterator[bytes]:
        try:
            yield first
            while (chunk := await anyio.to_thread.run_sync(next, chunks, None, limiter=viewer.limiter)) is not None:
                yield chunk
        finally:
            close()

    return StreamingResponse(send(), headers=headers, media_type=content_type)


class FileChunks:
    """The chunks of an open file, which is closed at its end, or when the response is dropped."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> FileChunks:
        return self

    def __next__(self) -> bytes:
        chunk = b"" if self.file.closed else self.file.read(CHUNK)
        if not chunk:
            self.close()
            raise StopIteration
        return chunk

    def close(self) -> None:
        self.file.close()

    __del__ = close


def write_parquet(frame: pl.LazyFrame) -> FileChunks:
    """A table as Parquet, in a temporary file that is unlinked while it is open, so that nothing of it stays."""
    with tempfile.NamedTemporaryFile(prefix="kofn-", suffix=".parquet") as file:
        try:
            frame.sink_parquet(file.name)
        except pl.exceptions.PolarsError as problem:
            raise WorldError(f"the table cannot be made: {str(problem).splitlines()[0][:200]}") from None
        return FileChunks(Path(file.name).open("rb"))


def parquet_rows(path: Path, rows: Ints) -> FileChunks:
    """These rows of a Parquet file, in this order, as another one."""
    if len(rows) < 2 or bool((np.diff(rows) > 0).all()):
        return write_parquet(scan_rows(path, rows))
    starts = range(0, len(rows), REORDERED_ROWS)
    return write_parquet(pl.concat([_read_rows(path, rows[low : low + REORDERED_ROWS]).lazy() for low in starts]))


LARGE = 8_000_000  # bytes of candidates on disk, from which on report.html is made in another process
SLICE = 2_000  # rows of a table in memory that become CSV at once
_one_at_a_time = threading.Lock()  # a page takes the memory of all texts of a run


def show(viewer: Viewer, request: Request, name: str) -> Response:
    """The page that lists the downloads."""
    view = viewer.runs.get(name)
    query = CaseQuery.from_request(request)
    filters = query.query_string(page=1)
    n = len(select_cases(view, query).rows) if filters else view.n
    return render_page(
        "export.html.j2",
        title=f"Export {name}",
        crumbs=breadcrumbs(name, ("export", f"{run_url(name, 'export')}{filters}")),
        run=name,
        count=count_of(n, view.n, "case"),
        filtered=bool(filters),
        exports=list(_exports(view, filters)),
        directory=str(view.path),
    )


def _exports(view: RunView, filters: str) -> Iterator[dict[str, Any]]:
    """The downloads: what, a description, and (format, URL)."""

    page = "numbers, charts and cases in one file that opens without a network; of a large run the first cases"
    candidates = "a row a candidate: its text, answer, cost, scores and verdicts"
    cases = "a row a case: input, reference, tags, and its value under every aggregator"
    cases_of_program = "a row a case: group, type, score, verdict, time"
    attributes = "a row a case and attribute: expected, actual and their difference"
    reports = "what was verified of every case, nested, as the run keeps it"
    for what, description, *names in (
        ("The run as one page", page, PAGE),
        *([("Candidates", candidates, "candidates.csv", CANDIDATES)] if view.table is not None else []),
        ("Cases", cases_of_program if view.table is None else cases, "cases.csv", CASES),
        *([("Attributes", attributes, "attributes.csv")] if view.table is None else []),
        ("Case reports", reports, REPORTS),
    ):
        formats = {"csv": "CSV", "parquet": "Parquet", "html": "HTML"}
        links = [
            (formats[n.rpartition(".")[2]], f"{run_url(view.name, n)}{'' if n in (PAGE, REPORTS) else filters}")
            for n in names
        ]
        yield {"what": what, "description": description, "links": links}


# --- one run


def report(viewer: Viewer, request: Request, name: str) -> Response:
    """report.html, made from the run as it is now."""
    view = viewer.runs.get(name)  # fails early where the run cannot be read
    file_name = f"{view.path.name}-{PAGE}"
    if request.method == "HEAD":
        return attachment(viewer, request, iter(()), file_name, HTML)
    with _one_at_a_time:
        is_large = view.table is not None and view.file(CANDIDATES).stat().st_size > LARGE
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it is sent
        if is_large:
            _write_in_process(view.path, file)
        else:
            file.write(report_page(load_run(view.path)).encode("utf-8", "replace"))
            file.flush()
    file.seek(0)
    chunks = FileChunks(file)
    return attachment(viewer, request, chunks, file_name, HTML, chunks.size)


def _write_in_process(run: Path, file: IO[bytes]) -> None:
    """The page from a process of its own, which gives the memory of a large run's texts back when it ends."""
    script = (
        "import sys; from kofn.render.report_html import report_page; from kofn.runs.record import load_run; "
        "sys.stdout.buffer.write(report_page(load_run(sys.argv[1])).encode('utf-8', 'replace'))"
    )
    command = [sys.executable, "-c", script, str(run)]
    process = subprocess.run(command, stdout=file, stderr=subprocess.PIPE, check=False)  # noqa: S603 - our own command
    if process.returncode:
        file.close()
        last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise WorldError(f"the page cannot be made: {last[:300]}")


def candidates(viewer: Viewer, request: Request, name: str) -> Response:
    """A row a candidate, in the order of the run."""
    view = viewer.runs.get(name)
    if view.table is None:
        raise NotFound("this run has no candidates: its cases are those of a program")
    rows = _case_rows(view, request)
    if rows is not None:
        selected = np.zeros(view.n, dtype=bool)
        selected[rows] = True
        rows = None if selected.all() else np.flatnonzero(np.repeat(selected, view.candidate_sets.sizes))
    return _table(viewer, request, view.file(CANDIDATES), rows, view.path)


def cases(viewer: Viewer, request: Request, name: str) -> Response:
    """A row a case."""
    view = viewer.runs.get(name)
    table = view.scores if view.table is None else view.file(CASES)
    return _table(viewer, request, table, _case_rows(view, request), view.path)


def attributes(viewer: Viewer, request: Request, name: str) -> Response:
    """One row per case and attribute, as in `kofn report --csv`."""
    view = viewer.runs.get(name)
    if view.table is not None:
        raise NotFound("the cases of this run are sets of outputs: they have no attributes of a program")
    rows = _case_rows(view, request)
    frames = _in_slices(view.run.reports if rows is None else view.run.reports[rows])
    chunks = (flat_frame(frame).write_csv(include_header=i == 0).encode() for i, frame in enumerate(frames))
    return attachment(viewer, request, chunks, f"{view.path.name}-attributes.csv", CSV)


def reports(viewer: Viewer, request: Request, name: str) -> Response:
    """The case reports as the run keeps them; schema 1 kept none."""
    view = viewer.runs.get(name)
    table = view.file(REPORTS) if view.file(REPORTS).is_file() else view.run.reports
    return _table(viewer, request, table, None, view.path)


def _table(
    viewer: Viewer, request: Request, table: Path | pl.DataFrame, rows: Ints | None, run: Path | None = None
) -> Response:
    """A table, or these rows of it in this order, as CSV or Parquet: as the end of the URL says."""
    what = request.url.path.rpartition("/")[2]
    name = what if run is None else f"{run.name}-{what}"
    if isinstance(table, pl.DataFrame) and rows is not None:
        table = table[rows]
    if what.endswith(".csv"):
        frames = _in_slices(table) if isinstance(table, pl.DataFrame) else slices(table, rows)
        return attachment(viewer, request, csv_chunks(frames), name, CSV)
    if isinstance(table, pl.DataFrame):
        chunks = write_parquet(table.lazy())
    else:
        # the file as it is on disk now: that it is replaced meanwhile changes nothing
        chunks = FileChunks(table.open("rb")) if rows is None else parquet_rows(table, rows)
    return attachment(viewer, request, chunks, name, PARQUET, chunks.size)


def _case_rows(view: RunView, request: Request) -> Ints | None:
    """The cases that match the query, in order; None for all in the order of the run."""
    query = CaseQuery.from_request(request)
    return select_cases(view, query).rows if query.query_string(page=1) else None


def _in_slices(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """A table in slices; one without rows is one slice, so that its header is written."""
    yield from (frame[low : low + SLICE] for low in range(0, max(1, frame.height), SLICE))


# --- the list


def runs(viewer: Viewer, request: Request) -> Response:
    """One row per run, as the list shows them."""
    lines = filter_runs(viewer.run_list.lines(), RunQuery.parse(request.query_params))
    types: dict[str, Any] = {
        "tags": pl.List(pl.String),
        **dict.fromkeys(("point", "low", "high", "cost"), pl.Float64),
        **dict.fromkeys(("cases", "candidates", "missing"), pl.Int64),
    }
    schema = {f.name: types.get(f.name, pl.String) for f in fields(RunLine)}
    columns = {name: [_encodable(getattr(line, name)) for line in lines] for name in schema}
    return _table(viewer, request, pl.DataFrame(columns, schema=schema, strict=False), None)


def _encodable(value: Any) -> Any:
    """A value that a table can hold: names of files may not be valid UTF-8."""
    if isinstance(value, tuple):
        return [_encodable(v) for v in value]
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if isinstance(value, str) else value
