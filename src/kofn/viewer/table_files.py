"""Tables as downloads: rows read from Parquet in slices, CSV without formulas, files sent in chunks."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import anyio.to_thread
import numpy as np
import polars as pl
from starlette.responses import Response, StreamingResponse

from kofn.errors import WorldError
from kofn.judge.label_sheet_files import guard_formula
from kofn.judge.labels import DANGEROUS
from kofn.runs.report_table import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from kofn.viewer.context import Viewer

    Ints = np.ndarray[Any, np.dtype[np.int64]]

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
    frame = scan_rows(path, rows[order]).collect(engine="streaming")
    back = np.empty(len(rows), dtype=np.int64)
    back[order] = np.arange(len(rows))
    return frame[back]


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
    columns = []
    for column in frame.iter_columns():
        text = column
        if column.dtype.is_nested():
            text = json_text(column)
        elif column.dtype == pl.Binary:
            text = column.bin.encode("base64")
        elif column.dtype in (pl.Categorical, pl.Enum):
            text = column.cast(pl.String)
        columns.append(text)
    texts = pl.col(pl.String)
    guard = pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + texts).otherwise(texts)
    safe = pl.DataFrame(columns).with_columns(guard.name.keep())
    return safe.rename({name: guard_formula(name) for name in safe.columns if guard_formula(name) != name})


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
    if request.method == "HEAD":
        _close(chunks)
        return Response(headers=headers, media_type=content_type)
    first = next(chunks, b"")  # before any header is sent: an error can still change the status

    async def send() -> AsyncIterator[bytes]:
        try:
            yield first
            while (chunk := await anyio.to_thread.run_sync(next, chunks, None, limiter=viewer.limiter)) is not None:
                yield chunk
        finally:
            _close(chunks)

    return StreamingResponse(send(), headers=headers, media_type=content_type)


def _close(chunks: Iterator[bytes]) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


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


def open_chunks(path: Path) -> FileChunks:
    """A file as it is on disk now; that it is replaced meanwhile changes nothing."""
    return FileChunks(path.open("rb"))


def write_parquet(frame: pl.LazyFrame) -> FileChunks:
    """A table as Parquet, in a temporary file that is unlinked while it is open, so that nothing of it stays."""
    handle, name = tempfile.mkstemp(prefix="kofn-", suffix=".parquet")
    os.close(handle)
    path = Path(name)
    try:
        frame.sink_parquet(path)
        return open_chunks(path)
    except pl.exceptions.PolarsError as problem:
        raise WorldError(f"the table cannot be made: {str(problem).splitlines()[0][:200]}") from None
    finally:
        path.unlink(missing_ok=True)


def parquet_rows(path: Path, rows: Ints) -> FileChunks:
    """These rows of a Parquet file, in this order, as another one."""
    if len(rows) < 2 or bool((np.diff(rows) > 0).all()):
        return write_parquet(scan_rows(path, rows))
    starts = range(0, len(rows), REORDERED_ROWS)
    return write_parquet(pl.concat([_read_rows(path, rows[low : low + REORDERED_ROWS]).lazy() for low in starts]))
