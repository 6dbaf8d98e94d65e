"""Assembles self-contained HTML pages: no network, no eval, and text from a file is never markup; data is packed."""

from __future__ import annotations

import base64
import gzip
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from markupsafe import Markup

from kofn.core.escape import escape_json, escape_script, html_lines, html_prose, show_hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from jinja2 import Environment

    from kofn.core.candidate_sets import Floats, Ints


def html_document(
    *, title: str, body: Markup, scripts: Sequence[str] = (), blocks: Mapping[str, bytes | PackedData] | None = None
) -> str:
    """A whole page: our style sheet, the body, scripts and data.

    title    text, escaped here
    body     markup
    scripts  JavaScript; each runs alone (strict, its names are its own) after the body is there
    blocks   ID -> bytes, put in as `<script type="text/plain" id=ID>` gzipped in base64; `kofn.embedded(ID)` gives a
             script a promise of the text
    """
    theme, *code = (wrap_script(script) for script in (*map(read_template, ("theme.js", "page.js")), *scripts))
    style = read_template("page.css")
    return (
        environment()
        .get_template("document.html.j2")
        .render(
            title=title,
            policy=content_policy([theme, *code], style),
            style=Markup(style),  # noqa: S704 - our own file
            theme=Markup(theme),  # noqa: S704 - ours, made fit for a script element; in the head, so that nothing flashes
            body=body,
            scripts=[Markup(text) for text in code],  # noqa: S704 - ours, made fit for a script element
            blocks={
                name: Markup(data if isinstance(data, PackedData) else pack(data))  # noqa: S704 - base64 holds no markup
                for name, data in (blocks or {}).items()
            },
        )
    )


def html_page(
    template: str,
    data: Mapping[str, Any],
    *,
    title: str,
    scripts: Sequence[str] = (),
    blocks: Mapping[str, bytes | PackedData] | None = None,
) -> str:
    """A whole page whose body is a template filled with data; `scripts` are files of ours."""
    body = Markup(environment().get_template(template).render(data))  # noqa: S704 - the template escapes
    return html_document(title=title, body=body, scripts=list(map(read_template, scripts)), blocks=blocks)


def wrap_script(text: str) -> str:
    """A script of ours with names of its own."""
    return escape_script(f'(() => {{\n"use strict";\n{text}\n}})();\n')


def content_policy(scripts: Sequence[str], style: str) -> str:
    """Only these scripts and this style sheet apply, by their hashes; nothing is loaded from anywhere.

    Attributes may set styles: charts and bars have their sizes there.
    """
    rules = [
        "default-src 'none'",
        f"script-src {' '.join(map(_hash_source, scripts))}",
        f"style-src {_hash_source(style)}",
        "style-src-attr 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rules)


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


@dataclass(frozen=True, slots=True)
class Stat:
    """A number for the head of a page; the ends place it on a line from 0 to 1 where it is a share."""

    name: str
    value: str
    detail: str = ""
    point: float | None = None
    low: float | None = None
    high: float | None = None


@cache
def read_template(name: str) -> str:
    """A file of ours beside the templates."""
    return (files("kofn.render") / "templates" / name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    """The templates; everything put into them is escaped unless it is Markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("kofn.render"),
        autoescape=True,
        # a misspelt name fails instead of printing nothing
        undefined=StrictUndefined,
        finalize=_show_text,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["lines"] = html_lines
    env.filters["prose"] = html_prose
    env.filters["json"] = lambda data: Markup(escape_json(data))  # noqa: S704 - `<` is escaped
    return env


def _show_text(value: Any) -> Any:
    """Every text a template prints shows all its characters; markup is left as it is."""
    # before autoescape, so that it sees the text and not entities
    return show_hidden(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_SAMPLE = 4  # chunks beside the largest that are compressed to guess how long texts may be


@dataclass(frozen=True, slots=True, kw_only=True)
class ByteBudget:
    """How much a page may hold: characters of packed data, of them for the index, cases, and candidates."""

    packed: int = 13_400_000
    index: int = 4_000_000
    cases: int = 20_000
    candidates: int = 500_000
    candidates_a_case: int = 2_000


class PackedData(str):
    """Base64 of gzipped bytes, ready for a page."""

    __slots__ = ()


def pack(data: bytes) -> PackedData:
    """Letters, digits, `+`, `/` and `=` only, whatever the bytes are.

    >>> gzip.decompress(base64.b64decode(pack(b"</script>")))
    b'</script>'
    """
    # mtime=0: the same data give the same bytes
    return PackedData(base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode())


def cut_texts(column: pl.Series, length: int | None) -> list[Any]:
    """Texts as they are, and those longer than `length` characters as [start, characters left out, end].

    >>> import polars as pl
    >>> cut_texts(pl.Series(["short", "abcdefghij", None]), 6)
    ['short', ['abc', 4, 'hij'], None]
    """
    values: list[Any] = column.to_list()
    if length is not None:
        for i in (column.str.len_chars() > length).fill_null(value=False).arg_true().to_list():
            values[i] = cut_middle(values[i], length)
    return values


def cut_middle(text: str | None, length: int) -> Any:
    """A text, or [start, characters left out, end] of a longer one."""
    if text is None or len(text) <= length:
        return text
    tail = length // 2
    return [text[: length - tail], len(text) - length, text[len(text) - tail :]]


def shift_spans(spans: Ints, sizes: pl.Series, length: int | None) -> Ints:
    """Places of answers in texts that may have lost their middle: moved with the end, -1 where they were cut."""
    if length is None:
        return spans
    size = sizes.fill_null(0).to_numpy().astype(np.int64)[:, None]  # lengths come unsigned
    tail = length // 2
    left_out = np.maximum(0, size - length)
    in_head = spans[:, 1:] <= np.where(left_out > 0, length - tail, size)
    in_tail = spans[:, :1] >= size - tail
    moved = np.where(in_head, spans, np.where(in_tail, spans - left_out, -1))
    return np.where(spans < 0, -1, moved)


def round_digits(values: Any, digits: int = 5) -> Any:
    """So many significant digits: enough to show and to sort by, and shorter than all of them.

    >>> to_json(round_digits(np.array([0.123456789, 1234567.0, 0.0, np.nan])))
    b'[0.12346,1234600.0,0.0,null]'
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(all="ignore"):
        # log10(0) is -inf: such numbers are kept as they are at the end
        power = np.nan_to_num(digits - 1 - np.floor(np.log10(np.abs(values))), posinf=0, neginf=0)
        # two factors of at least 1: negative powers of ten are not exact in binary
        up, down = 10.0 ** np.maximum(power, 0), 10.0 ** np.maximum(-power, 0)
        rounded = np.round(values * up / down) * down / up
    return np.where(np.isfinite(rounded), rounded, values)


def to_json(data: Any) -> bytes:
    """JSON; an array as a list, a number that is none as null."""
    return orjson.dumps(data, option=orjson.OPT_SERIALIZE_NUMPY)


def fit_chunks(
    sizes: Floats, make: Callable[[int, int | None], PackedData], longest: int, room: int
) -> tuple[list[PackedData], int | None] | None:
    """All chunks at the greatest length of texts at which they take at most `room`; None where none does.

    `sizes` are the bytes of the chunks before they are cut and packed. The length is found by bisection on a few
    chunks, each standing for those of about its size, and checked on all of them.
    """
    some = _sample(sizes)

    @cache  # bisection asks for the same lengths again
    def guess(length: int | None) -> float:
        made = _make_chunks([i for i, _ in some], make, length)
        return sum(len(one) * stands_for for one, (_, stands_for) in zip(made, some, strict=True))

    # 1.2: the sample may overestimate, so that only clearly too long texts are cut before all were tried whole
    length = _bisect(guess, longest, 0.97 * room) if guess(None) > 1.2 * room else None
    for _ in range(8):
        chunks = _make_chunks(range(len(sizes)), make, length)
        total = sum(len(c) for c in chunks)
        if total <= room:
            return chunks, length
        if length == 0:
            return None
        off = total / guess(length)  # by how much the sample is smaller than it should be
        shorter = _bisect(guess, longest, 0.97 * room / off)
        length = min(shorter, int(0.9 * (longest if length is None else length)))
    return None


def _sample(sizes: Floats) -> list[tuple[int, int]]:
    """A few chunks and how many each stands for: the middle one of every quarter by size, and the largest.

    >>> _sample(np.array([5, 1, 9, 3, 4]))
    [(1, 1), (3, 1), (4, 1), (0, 1), (2, 1)]
    """
    if not len(sizes):
        return []
    order = np.argsort(sizes, kind="stable")
    parts = [p for p in np.array_split(order[:-1], _SAMPLE) if len(p)] + [order[-1:]]
    return [(int(part[len(part) // 2]), len(part)) for part in parts]


def _make_chunks(
    which: Sequence[int], make: Callable[[int, int | None], PackedData], length: int | None
) -> list[PackedData]:
    """These chunks, two at a time: compression lets other threads run."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda i: make(i, length), which))


def _bisect(size: Callable[[int], float], longest: int, room: float) -> int:
    """The greatest length, to within 3%, whose size is at most `room`; 0 where none is."""
    low, high = 0, longest
    while high - low > max(1, low // 32):
        # from the longest text down by eighths first: the answer is usually far below it
        middle = (low + high) // 2 if low else max(1, high // 8)
        if size(middle) <= room:
            low = middle
        else:
            high = middle
    return low
