"""Comparisons of two runs: what a URL asks for, and the numbers of it, kept for a while."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
import polars as pl

from kofn.analysis.compare.differences import CandidateExcerpt, ChangedCase
from kofn.analysis.compare.systems import ComparisonOptions, Side, candidate_excerpts, compare_systems, questions_of
from kofn.core.table import segment_names
from kofn.errors import InputError
from kofn.importers.base import ReadOptions
from kofn.runs.files import CANDIDATES, CASES, MANIFEST, read_json
from kofn.runs.index import QUESTION_COLUMNS, Questions
from kofn.runs.load import load_table
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate
from kofn.viewer.caches import BackgroundCache
from kofn.viewer.case_list import MAX_MARKS, MAX_VALUES, pass_marks, tag_filters
from kofn.viewer.run_folder import run_stamp
from kofn.viewer.templating import whole_number

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.analysis.compare.report import ComparisonReport
    from kofn.core.candidate_sets import CandidateSets
    from kofn.viewer.caches import RunCache
    from kofn.viewer.run_folder import RunFolder
    from kofn.viewer.run_view import RunView

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
    all_pairs: bool = False


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
                all_pairs=first("pairs") == "all",
            ),
            way=first("way") if first("way") in DIRECTIONS else "",
            q=first("q")[:500].strip(),
            page=positive(first("page")) or 1,
        )

    def pairs(self) -> list[tuple[str, str | bytes]]:
        """The query as names and values."""
        fields = self.fields
        several = {"number": fields.numbers, "metric": fields.metrics, "by": fields.by}
        values = [(name, value) for name, chosen in several.items() for value in chosen]
        values += [("verdict", fields.verdict), ("top_k", str(fields.top_k or "")), ("way", self.way), ("q", self.q)]
        values += [("page", str(self.page) if self.page > 1 else ""), ("pairs", "all" if fields.all_pairs else "")]
        names = "ab" if len(self.runs) <= 2 else ["run"] * len(self.runs)
        runs: list[tuple[str, str | bytes]] = [(n, os.fsencode(run)) for n, run in zip(names, self.runs, strict=False)]
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


MAX_COMPARISONS = 6
MAX_RUNS = 8  # runs that are compared on one page
MAX_CHANGES = 400_000  # changed and unmatched cases in all cached comparisons
MAX_NUMBERS = 24
MAX_CASES, MAX_CANDIDATES = 300_000, 1_500_000  # of a run: the columns of both are in memory
MAX_EXCERPTS = 100  # candidates of a side; the case's own page has the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class PageComparison:
    """A comparison, the rows of the changed cases in each run, and the choices for another one."""

    report: ComparisonReport
    rows: dict[str, tuple[int, int]]
    metrics: tuple[str, ...]
    numbers: tuple[str, ...]
    segments: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.report.changed) + sum(len(u.only_a) + len(u.only_b) for u in self.report.unmatched)


class ComparisonCache:
    """The last few comparisons, each kept until a file of its runs changes."""

    def __init__(self, folder: RunFolder, runs: RunCache) -> None:
        self.folder, self.runs = folder, runs
        self._cache = BackgroundCache[PageComparison](
            max_values=MAX_COMPARISONS, max_size=MAX_CHANGES, size=lambda comparison: comparison.size
        )

    def get(self, names: tuple[str, ...], fields: CompareFields) -> PageComparison | None:
        """The other runs against the first; None while it is computed. What cannot be compared is an InputError."""
        paths = [self.folder.run(name) for name in names]
        for name, path in zip(names, paths, strict=True):
            check_size(name, path)
        return self._cache.get(
            (names, tuple(map(run_stamp, paths)), fields),
            lambda: compare_views([self.runs.get(name) for name in names], fields),
        )


def check_size(name: str, path: Path) -> None:
    """Refuse what takes minutes, or more memory than a viewer may use; run.json says how large a run is."""
    result = (read_json(path / MANIFEST).get("result") or {}) if (path / MANIFEST).is_file() else {}
    for what, most in (("case", MAX_CASES), ("candidate", MAX_CANDIDATES)):
        n = result.get(f"n_{what}s") or 0
        if n > most:
            raise InputError(
                f"{label(name)}: {n:,} {what}s: at most {most:,} are compared on a page; "
                "`kofn compare A B --html FILE` takes more"
            )


def compare_views(views: Sequence[RunView], fields: CompareFields) -> PageComparison:
    """All against the first, or every two. The changed cases of more than two runs are on the pages of their pairs."""
    sides = [side_of(view) for view in views]
    _check(sides, fields)
    options = ComparisonOptions(
        aggregate=fields.numbers,
        metrics=fields.metrics,
        by=fields.by,
        top_k=fields.top_k,
        verdict=fields.verdict or None,
        all_pairs=fields.all_pairs,
    )
    report = compare_systems(sides, options, bodies=False)
    changed = {change.case for change in report.changed} if len(sides) == 2 else set()
    at_a, at_b = ({case: i for i, case in enumerate(side.cases) if case in changed} for side in sides[:2])
    metrics = tuple(m for m in sides[0].metrics if all(m in side.metrics for side in sides[1:]))
    shown = [name for side in sides for of, name in side.result.case_values if of in metrics]
    return PageComparison(
        report=report,
        rows={case: (at_a[case], at_b[case]) for case in changed},
        metrics=metrics,
        numbers=tuple(dict.fromkeys(shown)),
        segments=tuple(dict.fromkeys(name for view in views for name in _segments(view))),
    )


def _segments(view: RunView) -> list[str]:
    """The fields that cases can be segmented by."""
    if view.table is None:
        return ["group"] if 1 < view.scores["group"].n_unique() <= MAX_VALUES else []
    return [tag["name"] for tag in tag_filters(view)]


def label(name: str) -> str:
    """What a run is called; the folder itself may be one."""
    return name or "(this folder)"


def side_of(view: RunView) -> Side:
    """A run as a side of a comparison; each case of a program becomes one candidate, which passes or does not."""
    result = view.run.result
    if result is None:
        return _side_of_program(view)
    columns = [name for name in QUESTION_COLUMNS if name in view.case_schema]
    # a hash of the question of each case: the texts are not kept
    hashes = view.scan(CASES).select(pl.col(columns).hash()).collect(engine="streaming")
    questions = Questions(
        result.table.cases["case_id"].to_list(), {c.name: c.to_numpy() for c in hashes.iter_columns()}
    )
    units = view.graded_candidates.units()
    return Side(name=label(view.name), result=result, questions=questions, use=view.run.options.use, **units)


def _side_of_program(view: RunView) -> Side:
    passed = pl.when(pl.col("score").is_not_null()).then("passed").alias("passed")
    rows = view.scores.select(pl.Series("id", view.keys), "score", passed, "group").to_dicts()
    if not rows:
        raise InputError(f"{label(view.name)}: this run has no case")
    result = evaluate(load_table(rows, ReadOptions(everything=True)), GradingConfig(aggregate=("mean",), threshold=1.0))
    return Side(name=label(view.name), result=result)


def _check(sides: Sequence[Side], fields: CompareFields) -> None:
    """Refuse what would take forever, and names that would be imported: anybody can make somebody open a URL."""
    for name in (*fields.numbers, fields.verdict):
        if ":" in name:
            raise InputError(f"{name}: functions of your own are run by `kofn compare -a {name}`, not from an address")
    if len(fields.numbers) > MAX_NUMBERS:
        raise InputError(f"{len(fields.numbers)} numbers: at most {MAX_NUMBERS} are compared on one page")
    for name in fields.by:
        n = _count_values(sides, name)
        if n > MAX_VALUES:
            raise InputError(f"by {name}: it has {n:,} values: at most {MAX_VALUES} are compared on one page")


def _count_values(sides: Sequence[Side], name: str) -> int:
    """How many values a field has in the first side that has it; where none does, the last says so."""
    for side in sides[:-1]:
        try:
            return len(set(segment_names(side.table, name)))
        except InputError:
            continue
    return len(set(segment_names(sides[-1].table, name)))


# --- the cases that changed


def excerpts_of(view: RunView, row: int, metric: str, top_k: int | None) -> tuple[tuple[CandidateExcerpt, ...], int]:
    """The candidates of a case, texts and all, and how many are left out."""
    sets = sets_of(view, metric)
    if sets is None:  # the verified attributes of a program's case, one line each
        signs = {True: "✓", False: "✗"}
        results = view.run.reports["results"][row].to_list()
        lines = [f"{signs.get(r['is_correct'], '?')} {r['attribute']}" for r in results[:MAX_EXCERPTS]]
        verdict = {1: True, 0: False}.get(int(view.verdicts[row]))
        return (CandidateExcerpt(index=0, text="\n".join(lines), answer=None, passed=verdict),), 0
    n = int(sets.sizes[row]) if top_k is None else min(top_k, int(sets.sizes[row]))
    candidates = candidate_excerpts(sets, row, range(min(n, MAX_EXCERPTS)))
    if view.has_texts:
        texts = view.scan(CANDIDATES).slice(int(sets.offsets[row]), len(candidates)).select("text").collect()["text"]
        candidates = tuple(replace(c, text=text) for c, text in zip(candidates, texts, strict=True))
    return candidates, max(0, n - MAX_EXCERPTS)


def sets_of(view: RunView, metric: str) -> CandidateSets | None:
    """The candidates under a metric; None where a run has none."""
    if view.run.result is None:
        return None
    every = view.run.result.scored
    return next((scored.sets for scored in every if scored.metric == metric), every[0].sets)


def marks(view: RunView, row: int, metric: str, top_k: int | None) -> list[str]:
    """Whether the first candidates pass, as CSS classes of the marks in the list of changed cases."""
    sets = sets_of(view, metric)
    if sets is None:
        return []
    low, high = sets.offsets[row : row + 2]
    return pass_marks(sets.passes[low : min(high, low + min(MAX_MARKS, top_k or MAX_MARKS))])


def compared_case(
    a: RunView, b: RunView, rows: tuple[int, int], metric: str, top_k: int | None
) -> tuple[ChangedCase, tuple[int, int]]:
    """A case of both runs with its candidates, and how many of each side are left out."""
    left, left_out = excerpts_of(a, rows[0], metric, top_k)
    right, right_out = excerpts_of(b, rows[1], metric, top_k)
    changed = ChangedCase(
        case=a.scores["id"][rows[0]],
        name_a=label(a.name),
        name_b=label(b.name),
        passed_a=None,
        passed_b=None,
        a=left,
        b=right,
        **_question(b, rows[1]),
    )
    return changed, (left_out, right_out)


def _question(view: RunView, row: int) -> dict[str, Any]:
    """The input and the reference of a case."""
    if view.table is None:
        return {"input": view.questions(np.array([row]))[0], "reference": None}
    columns = view.case(row)
    frame = pl.DataFrame({name: [columns[name]] for name in ("input", "reference") if columns.get(name) is not None})
    return questions_of(replace(view.table, cases=frame), 0)
