"""URLs of runs and of their pages, and the numbers in a query string."""

from __future__ import annotations

import os
from urllib.parse import quote, unquote_to_bytes

RUN_PREFIX = "/run/"
PAGE_MARK = "/-/"  # between the name of a run, which may hold slashes, and the page of that run


def run_url(name: str, page: str = "") -> str:
    """The URL of a run, or of one of its pages. File names may hold any bytes.

    >>> run_url("models/a b"), run_url("", "case")
    ('/run/models/a%20b', '/run//-/case')
    """
    return RUN_PREFIX + quote(os.fsencode(name)) + (f"{PAGE_MARK}{page}" if page else "")


def split_run_path(raw_path: bytes) -> tuple[str, str]:
    """(name of the run, page of it) of a path as the server received it.

    >>> split_run_path(b"/run/models/a%20b/-/case"), split_run_path(b"/run/first")
    (('models/a b', 'case'), ('first', ''))
    """
    rest, mark = raw_path.removeprefix(RUN_PREFIX.encode()), PAGE_MARK.encode()
    name, _, page = rest.partition(mark) if mark in rest else (rest, b"", b"")
    return os.fsdecode(unquote_to_bytes(name)).strip("/"), unquote_to_bytes(page).decode("utf-8", "replace")


def breadcrumbs(name: str, *more: tuple[str, str]) -> list[tuple[str, str]]:
    """(title, URL) of a run and of the pages below it."""
    return [(name or "(this folder)", run_url(name)), *more]


def whole_number(text: str, digits: int = 11) -> int | None:
    """The whole number that a query string holds; None for anything else, or for more digits.

    >>> whole_number("12"), whole_number("-1"), whole_number("x"), whole_number("9" * 40)
    (12, None, None, None)
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None
