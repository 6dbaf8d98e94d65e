"""What a comparison page shows, from its URL: the two runs, the numbers compared, and which of the changed cases."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from kofn.analysis.compare.systems import ComparisonOptions
from kofn.errors import InputError
from kofn.viewer.urls import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence

DIRECTIONS = {"down": "pass → fail", "up": "fail → pass"}
_MAX_PARAMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareFields:
    """What is compared, in the words of `kofn compare`."""

    metrics: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    verdict: str = ""
    top_k: int | None = None

    @property
    def options(self) -> ComparisonOptions:
        """The same for `compare_systems`."""
        return ComparisonOptions(
            aggregate=self.numbers,
            metrics=self.metrics,
            by=self.by,
            top_k=self.top_k,
            verdict=self.verdict or None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareQuery:
    """Which runs, what of them, and which of the cases that changed.

    runs  the baseline first; `a=` and `b=` name them one by one
    way   one of `DIRECTIONS`, or "" for both
    """

    runs: tuple[str, ...] = ()
    fields: CompareFields = field(default_factory=CompareFields)
    way: str = ""
    q: str = ""
    page: int = 1

    @classmethod
    def parse(cls, query: bytes) -> CompareQuery:
        """The query of a URL. Unknown parameters are ignored; names of runs may hold any bytes.

        >>> CompareQuery.parse(b"run=x&b=y%ff&number=mean&page=2").pairs()
        [('a', b'x'), ('b', b'y\\xff'), ('number', 'mean'), ('page', '2')]
        """
        params = parse_params(query)

        def every(name: str) -> tuple[str, ...]:
            return tuple(dict.fromkeys(value for key, value in params if key == name and value))

        def first(name: str) -> str:
            return next(iter(every(name)), "")

        numbers = tuple(part.strip() for text in every("number") for part in _split(text) if part.strip())
        return cls(
            runs=named_runs(params),
            fields=CompareFields(
                metrics=every("metric"),
                numbers=tuple(dict.fromkeys(numbers)),
                by=every("by"),
                verdict=first("verdict").strip()[:200],
                top_k=positive(first("top_k")),
            ),
            way=first("way") if first("way") in DIRECTIONS else "",
            q=first("q")[:500].strip(),
            page=positive(first("page")) or 1,
        )

    def pairs(self) -> list[tuple[str, str | bytes]]:
        """The query as names and values."""
        fields = self.fields
        values = [("number", number) for number in fields.numbers]
        values += [("metric", metric) for metric in fields.metrics]
        values += [("by", by) for by in fields.by]
        values += [("verdict", fields.verdict), ("top_k", str(fields.top_k or "")), ("way", self.way), ("q", self.q)]
        values += [("page", str(self.page) if self.page > 1 else "")]
        runs: list[tuple[str, str | bytes]] = [(n, os.fsencode(run)) for n, run in zip("ab", self.runs, strict=False)]
        return [*runs, *((name, value) for name, value in values if value)]

    def url(self, **changes: Any) -> str:
        """The URL of this page with changes."""
        return f"/compare?{urlencode(replace(self, **changes).pairs(), errors='replace')}"


def parse_params(query: bytes) -> list[tuple[str, str]]:
    """The names and values of a query string; bytes that are not UTF-8 become surrogates, as in names of files."""
    try:
        return parse_qsl(
            query.decode("utf-8", "surrogateescape"),
            keep_blank_values=True,
            errors="surrogateescape",
            max_num_fields=_MAX_PARAMS,
        )
    except ValueError:
        raise InputError(f"this address asks for more than {_MAX_PARAMS} things") from None


def named_runs(params: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The runs that are named, the baseline first; an empty name is the folder itself."""
    named = {key: value.strip("/") for key, value in reversed(params) if key in ("a", "b")}
    rest = [value.strip("/") for key, value in params if key == "run"]
    return tuple(([named["a"]] if "a" in named else []) + rest + ([named["b"]] if "b" in named else []))


def _split(text: str) -> list[str]:
    """A text cut at its commas, except those within parentheses.

    >>> _split("pass@2, ndcg(k=3, gain='exp2')")
    ['pass@2', " ndcg(k=3, gain='exp2')"]
    """
    parts, depth = [""], 0
    for letter in text[:1000]:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def positive(text: str) -> int | None:
    """A whole number above 0."""
    return whole_number(text, 8) or None
