"""Tables as files: rows read from Parquet a slice at a time, CSV that is never a formula, attachments."""

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

from kofn.calibration.labels import DANGEROUS
from kofn.calibration.sheet import guarded
from kofn.errors import WorldError
from kofn.report.jsontext import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from starlette.requests import Request

    from kofn.web.app import Viewer

    Ints = np.ndarray[Any, np.dtype[np.int64]]

PIECE = 2_000_000  # bytes of a table that are in memory at once, about
FEWEST, MOST = 200, 100_000  # rows of a slice, to begin with and at most
SHUFFLED = 20_000  # rows that are brought into another order at once
CHUNK = 1 << 18
CSV, PARQUET, HTML = "text/csv; charset=utf-8", "application/vnd.apache.parquet", "text/html; charset=utf-8"
_FORMULA = "^[" + "".join(re.escape(c) for c in (*DANGEROUS, "'")) + "]"


# --- rows


def slices(path: Path, rows: Ints | None = None) -> Iterator[pl.DataFrame]:
    """The rows of a Parquet file in pieces of a few megabytes: all of them, or these in this order.

    A file that becomes another one meanwhile ends it with an error: two halves of two runs are no table.
    """
    stamp = _stamp(path)
    n = int(pl.scan_parquet(path, glob=False).select(pl.len()).collect().item())
    pieces: Iterator[pl.DataFrame]
    if rows is not None and len(rows) > 1 and bool((np.diff(rows) <= 0).any()):
        pieces = (_taken(path, rows[low : low + SHUFFLED]) for low in range(0, len(rows), SHUFFLED))
    else:
        pieces = _in_order(path, n, rows)
    yield pl.DataFrame(schema=pl.read_parquet_schema(path))
    for piece in pieces:
        if _stamp(path) != stamp:
            raise WorldError(f"{path.name}: was written again meanwhile: ask for it again")
        yield piece


def _stamp(path: Path) -> tuple[int, int, int]:
    told = path.stat()
    return told.st_ino, told.st_mtime_ns, told.st_size


def _in_order(path: Path, n: int, rows: Ints | None) -> Iterator[pl.DataFrame]:
    low, step = 0, FEWEST
    while low < n:
        high = min(low + step, n)
        some = None if rows is None else rows[np.searchsorted(rows, low) : np.searchsorted(rows, high)] - low
        if some is None or len(some):
            frame = pl.scan_parquet(path, glob=False).slice(low, high - low).collect()
            step = int(min(MOST, 4 * step, max(1, step * PIECE / max(1, frame.estimated_size()))))
            yield frame if some is None else frame[some]
        low = high


def _taken(path: Path, rows: Ints) -> pl.DataFrame:
    """These rows, in this order."""
    order = np.argsort(rows, kind="stable")
    found = picked(path, rows[order]).collect(engine="streaming")
    back = np.empty(len(rows), dtype=np.int64)
    back[order] = np.arange(len(rows))
    return found[back]


def picked(path: Path, rows: Ints) -> pl.LazyFrame:
    """These rows, in the order of the file."""
    found = pl.scan_parquet(path, glob=False)
    place = "row"
    while place in found.collect_schema():
        place += "_"
    wanted = pl.Series(rows, dtype=pl.UInt32).implode()
    return found.with_row_index(place).filter(pl.col(place).is_in(wanted)).drop(place)


# --- CSV


def csv_of(frames: Iterator[pl.DataFrame]) -> Iterator[bytes]:
    """CSV of tables with the same columns, headed once."""
    for i, frame in enumerate(frames):
        safe = harmless(frame)
        yield safe.write_csv(include_header=i == 0).encode()


def harmless(frame: pl.DataFrame) -> pl.DataFrame:
    """A table that CSV can hold: lists as JSON, and no text or name that a spreadsheet would take for a formula.

    Numbers stay numbers.

    >>> print(harmless(pl.DataFrame({"=a": ["=1+1", "x"], "b": [-1, 2], "c": [["y"], None]})).write_csv(), end="")
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
    made = pl.DataFrame(columns)
    texts = pl.col(pl.String)
    guard = pl.when(texts.str.contains(_FORMULA)).then(pl.lit("'") + texts).otherwise(texts)
    marked = made.with_columns(guard.name.keep())
    return marked.rename({name: guarded(name) for name in marked.columns if guarded(name) != name})


# --- attachments


def disposition(name: str) -> str:
    """The header that names a file that is saved, whatever characters the name has (RFC 6266).

    >>> print(disposition("a b.csv"))
    attachment; filename="a_b.csv"; filename*=UTF-8''a%20b.csv
    >>> print(disposition('ä"/../x.csv'))
    attachment; filename="x.csv"; filename*=UTF-8''%C3%A4%22_.._x.csv
    """
    seen = "".join(c if c.isprintable() and c not in "/\\" else "_" for c in name)[-150:]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", seen).strip("._-") or "kofn"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(seen, safe='', errors='replace')}"


def attached(
    viewer: Viewer, request: Request, pieces: Iterator[bytes], name: str, kind: str, size: int | None = None
) -> Response:
    """A file to be saved, sent as it is made. What is wrong with its beginning is told on a page instead."""
    headers = {"content-disposition": disposition(name)} | ({} if size is None else {"content-length": str(size)})
    if request.method == "HEAD":
        _close(pieces)
        return Response(headers=headers, media_type=kind)
    first = next(pieces, b"")

    async def sent() -> AsyncIterator[bytes]:
        try:
            yield first
            while (piece := await anyio.to_thread.run_sync(next, pieces, None, limiter=viewer.limiter)) is not None:
                yield piece
        finally:
            _close(pieces)

    return StreamingResponse(sent(), headers=headers, media_type=kind)


def _close(pieces: Iterator[bytes]) -> None:
    close = getattr(pieces, "close", None)
    if close is not None:
        close()


class OfFile:
    """An open file in pieces; it is closed at its end, and when nobody wants it any more."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def __iter__(self) -> OfFile:
        return self

    def __next__(self) -> bytes:
        piece = b"" if self.file.closed else self.file.read(CHUNK)
        if not piece:
            self.close()
            raise StopIteration
        return piece

    def close(self) -> None:
        self.file.close()

    __del__ = close


def opened(path: Path) -> OfFile:
    """A file as it is on disk now; that it is replaced meanwhile changes nothing."""
    return OfFile(path.open("rb"))


def written(frame: pl.LazyFrame) -> OfFile:
    """A table as Parquet: in a file that has no name any more, so that nothing of it stays."""
    handle, name = tempfile.mkstemp(prefix="kofn-", suffix=".parquet")
    os.close(handle)
    path = Path(name)
    try:
        frame.sink_parquet(path)
        return opened(path)
    except pl.exceptions.PolarsError as problem:
        raise WorldError(f"the table cannot be made: {str(problem).splitlines()[0][:200]}") from None
    finally:
        path.unlink(missing_ok=True)


def parquet_of(path: Path, rows: Ints) -> OfFile:
    """These rows of a Parquet file, in this order, as another one."""
    if len(rows) < 2 or bool((np.diff(rows) > 0).all()):
        return written(picked(path, rows))
    pieces = [_taken(path, rows[low : low + SHUFFLED]).lazy() for low in range(0, len(rows), SHUFFLED)]
    return written(pl.concat(pieces))
