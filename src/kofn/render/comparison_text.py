"""A comparison as text: for a terminal, as a document for a notebook, and as Markdown or LaTeX (booktabs) to paste."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kofn.analysis.compare.report import headline_text
from kofn.core.document import Document, Grid, display_width, grid_lines, interval_cells
from kofn.core.escape import code_name, escape_controls, escape_latex, escape_prose, markdown_table
from kofn.core.format import format_count, format_interval, format_level, format_number, format_p, format_signed
from kofn.extract.answer_spans import locate
from kofn.render.text_layout import (
    color_mark,
    fit_columns,
    grid_width,
    insert_column,
    labelled_lines,
    shorten_name,
    styled_lines,
    warning_lines,
    without_columns,
    wrap_columns,
)
from kofn.render.trend_text import interval_heading
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from kofn.analysis.compare.differences import (
        CandidateExcerpt,
        ChangedCase,
        Difference,
        GraderAgreement,
        UnmatchedCases,
        ValueLevel,
    )
    from kofn.analysis.compare.report import ComparisonReport
    from kofn.render.text_layout import Style

# columns to leave out where a terminal is narrow; "names": before the others, the sides are called a and b
DROP_FIRST = ("McNemar", "missing", "names", "cases", "p", "+/=/-", "a", "b")
MOST_NAMED = 6  # differences that hold, by name
CANDIDATES = 3  # of a side of a changed case
_NAME, _ID = 14, 40
VERDICTS = {True: "pass", False: "fail", None: "neither"}
WAYS = {"down": "pass → fail", "up": "fail → pass", "other": "with the same verdict"}


def format_comparison(
    found: ComparisonReport, style: Style = lambda text, _: text, *, width: int = 100, changed: int = 3
) -> str:
    """The comparison as text of at most `width` columns where its tables allow; `changed` cases of each way."""
    first, *rest = sentences(found, _short)
    parts = [
        styled_lines(first, style, "strong", width)
        + [line for text in (comparison_title(found), *rest) for line in wrap_columns(escape_controls(text), width)],
        *(grid_lines(g, style) for g in _overview(found, width)),
        *(_table(*group, style, width) for group in _groups(found)),
        *(grid_lines(fit_columns(g, width, ("picks by", "chance", g.header[3])), style) for g in _selections(found)),
        labelled_lines(_facts(found), style, width),
        *_changed_parts(found, style, width, changed),
        warning_lines(found.warnings, style, width),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def comparison_title(found: ComparisonReport) -> str:
    """Who is compared with whom, on what."""
    first, *rest = (shorten_name(name, 40) for name in found.names)
    every = len({d.sides for d in found.differences}) > len(rest)
    who = f"every two of {', '.join((first, *rest))}" if every else f"{', '.join(rest)} against {first}"
    return f"{who}: {found.about}"


def sentences(
    found: ComparisonReport, quoted: Callable[[str], str] = str, said: Callable[[str], str] = str
) -> list[str]:
    """The headline, and how many differences are significant. `quoted` shows a name, `said` a warning."""
    return [headline_text(found, quoted, said), *filter(None, [count_sentence(found, quoted)])]


def count_sentence(found: ComparisonReport, quoted: Callable[[str], str] = str) -> str:
    """How many differences are significant, by what rule, and which."""
    holding, total = [d for d in found.differences if d.holds], len(found.differences)
    if total == 1 or all(d.too_few for d in found.differences):
        return ""
    same = f", {found.n_tests} of them different tests" if found.n_tests < total else ""
    are = "is" if len(holding) == 1 else "are"
    rule = f"{len(holding)} of {total} differences {are} significant (p below {found.rules.alpha:g} after Holm{same})"
    several = len({d.sides for d in found.differences}) > 1
    names = []
    for d in holding:
        where = "" if d.segment is None else f" in {quoted(d.segment)}"
        pair = f" of {quoted(d.name_b)} against {quoted(d.name_a)}" if several else ""
        names.append(f"{quoted(d.aggregator)}{where}{pair} ({d.word})")
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{rule}{': ' if names else ''}{', '.join(names[:MOST_NAMED])}{more}."


def _short(name: str) -> str:
    return shorten_name(name, _ID)


# the tables of differences


def difference_groups(
    found: ComparisonReport, *, by_metric: bool
) -> dict[tuple[tuple[int, int] | None, str, str], list[Difference]]:
    """The differences of each table, by pair, by metric where asked for, and by the field that slices them.

    Where every row is of another pair, all share a table whose pair is None.
    """
    groups: dict[tuple[tuple[int, int] | None, str, str], list[Difference]] = {}
    pairs = {d.sides for d in found.differences}
    together = len(pairs) > 1 and len(pairs) == len(found.differences)
    for d in found.differences:
        by = "" if d.segment is None else d.segment.partition("=")[0]
        key = (None if together else d.sides, d.metric if by_metric else "", by)
        groups.setdefault(key, []).append(d)
    return groups


def _groups(found: ComparisonReport) -> Iterable[tuple[str, list[Difference], bool]]:
    """What stands in one table: its title, its rows, and whether each is of another pair."""
    several = len({d.sides for d in found.differences}) > 1
    for (sides, _, by), rows in difference_groups(found, by_metric=False).items():
        names = f"{_short(rows[0].name_b)} against {_short(rows[0].name_a)}" if several and sides is not None else ""
        yield ", ".join(filter(None, [names, f"by {by}" if by else ""])), rows, sides is None


def overview_rows(found: ComparisonReport) -> list[tuple[ValueLevel, tuple[Difference | None, ...]]]:
    """Of three or more sides, every number of all of them, and its difference from the first where it was tested."""
    if len(found.names) < 3:
        return []
    tested = {(d.metric, d.aggregator, d.segment, d.sides): d for d in found.differences}
    return [
        (
            level,
            tuple(
                tested.get((level.metric, level.aggregator, level.segment, (0, i))) for i in range(len(level.values))
            ),
        )
        for level in found.levels
        if level.segment is None
    ]


def _overview(found: ComparisonReport, width: int) -> list[Grid]:
    """Three or more sides beside each other, as many as fit; marked where one differs from the first."""
    rows = overview_rows(found)
    if not rows:
        return []
    several = len({level.metric for level, _ in rows}) > 1
    header = ["number", *(["metric"] if several else []), *(shorten_name(name, _NAME) for name in found.names), "cases"]
    cells = [
        (
            shorten_name(level.aggregator, 24),
            *([shorten_name(level.metric, 24)] if several else []),
            *(
                format_number(value) + (f" {difference_mark(d)[:1]}" if d is not None else "  ")
                for value, d in zip(level.values, differences, strict=True)
            ),
            f"{level.n:,}",
        )
        for level, differences in rows
    ]
    grid = Grid("", tuple(header), tuple(cells), tuple(i > several for i in range(len(header))))
    return [grid] if grid_width(grid) <= width else []


def comparison_document(found: ComparisonReport) -> Document:
    """The same for a notebook: every difference drawn, what changed as counts."""
    return Document(
        headline=(
            headline_text(found, _short),
            comparison_title(found),
            *filter(None, [count_sentence(found, _short)]),
        ),
        grids=(*(_drawing_grid(*group) for group in _groups(found)), *_selections(found)),
        notes=tuple(_facts(found)),
        warnings=tuple(map(str, found.warnings)),
    )


def _drawing_grid(words: str, rows: Sequence[Difference], pairs: bool) -> Grid:
    """A table of differences with a column that draws them, 0 in its middle."""
    grid = _grid(rows, words, pairs=pairs)
    grid = without_columns(grid, _empty_columns(grid))
    every = [abs(x) for d in rows for x in interval_ends(d) if x is not None]
    # symmetric around 0, so that no difference is in the middle of every row
    most = max(every, default=0.0) or 1.0
    at = grid.header.index("")
    bars = []
    for d in rows:
        low, difference, high = interval_ends(d)
        bars.append("" if difference is None else interval_cells(low, difference, high, (-most, most)))
    sides = {} if pairs else _side_names(rows)
    named = replace(grid, header=tuple(sides.get(h, h) for h in grid.header))
    return insert_column(named, at, f"{-most:+.2g}  {most:+.2g}", bars)


def interval_ends(d: Difference) -> tuple[float | None, float | None, float | None]:
    """A difference between the ends of its interval."""
    return d.comparison.low, d.comparison.difference, d.comparison.high


def better_alike_worse(d: Difference) -> tuple[int, int, int]:
    """In how many cases b is better than a, alike, and worse; where neither is better, higher counts as better."""
    c = d.comparison
    # wins are cases in which b is higher, which is worse where less is better
    return (c.losses, c.ties, c.wins) if d.more_is_better is False else (c.wins, c.ties, c.losses)


def _side_names(rows: Sequence[Difference]) -> dict[str, str]:
    return {"a": shorten_name(rows[0].name_a, _NAME), "b": shorten_name(rows[0].name_b, _NAME)}


def _empty_columns(grid: Grid) -> set[str]:
    return {h for h, *cells in zip(grid.header, *grid.rows, strict=True) if h and set(cells) <= {"", "-"}}


def _table(words: str, rows: Sequence[Difference], pairs: bool, style: Style, width: int) -> list[str]:
    """The rows with as many columns as fit; where the sides' names do not, they are called a and b."""
    whole = _grid(rows, "", pairs=pairs)
    whole = without_columns(whole, _empty_columns(whole))
    for n in range(len(DROP_FIRST) + 1):
        grid = without_columns(whole, DROP_FIRST[:n])
        named = not pairs and "names" not in DROP_FIRST[:n]
        if named:
            sides = _side_names(rows)
            grid = replace(grid, header=tuple(sides.get(h, h) for h in grid.header))
        if grid_width(grid) <= width:
            break
    stated = "" if named or pairs else f"a is {_short(rows[0].name_a)}, b is {_short(rows[0].name_b)}"
    head, *lines = grid_lines(grid, lambda text, _: text)
    return [
        *(styled_lines(words, style, "strong", width) if words else []),
        *(styled_lines(stated, style, "dim", width) if stated else []),
        style(head, "head"),
        *(color_mark(line, difference_mark(d), d.word, style) for line, d in zip(lines, rows, strict=True)),
    ]


def _grid(rows: Sequence[Difference], title: str, *, pairs: bool) -> Grid:
    level = interval_heading(rows[0].comparison.level)
    several = len({d.metric for d in rows}) > 1
    header = ("compared", "metric", "number", "segment", "a", "b", "b - a", level, "", "p", "Holm", "McNemar", "+/=/-",
              "cases", "missing")  # fmt: skip
    out: list[tuple[str, ...]] = []
    for d in rows:
        c = d.comparison
        few = "*" if d.segment is not None and c.n + c.n_missing < SMALL_SEGMENT else ""
        out.append(
            (
                f"{shorten_name(d.name_b, 16)} against {shorten_name(d.name_a, 16)}" if pairs else "",
                shorten_name(d.metric, 24) if several else "",
                shorten_name(d.aggregator, 24),
                "" if d.segment is None else shorten_name(d.segment.partition("=")[2], 16) + few,
                format_number(c.a),
                format_number(c.b),
                format_signed(c.difference),
                format_interval(c.low, c.high),
                difference_mark(d),
                format_p(c.p) + ("†" if d.interval_agrees is False else ""),
                format_p(d.p_holm),
                format_p(c.mcnemar_p),
                f"{c.wins:,}/{c.ties:,}/{c.losses:,}",
                f"{c.n:,}",
                f"{c.n_missing:,}" if c.n_missing else "",
            )
        )
    right = tuple(h not in ("compared", "metric", "number", "segment", "") for h in header)
    return Grid(title, header, tuple(out), right)


def difference_mark(d: Difference) -> str:
    """▲ or ▼ and a word where a difference is significant, · where it is not; few where too few cases are shared."""
    if d.p_holm is None:
        return ""
    if d.too_few:
        return "few"
    return f"{'▲' if d.sign > 0 else '▼'} {d.word}" if d.holds else "·"


# what else there is to say


def _facts(found: ComparisonReport) -> list[tuple[str, str]]:
    rows = [row for one in found.agreements for row in _agreement_rows(one, several=len(found.agreements) > 1)]
    rows += [("unmatched", unmatched_text(one)) for one in found.unmatched]
    return [*rows, *changed_rows(found)]


def _agreement_rows(one: GraderAgreement, *, several: bool) -> Iterable[tuple[str, str]]:
    n, a, b = one.counts, _short(one.name_a), _short(one.name_b)
    who = f"{b} against {a}: " if several else ""
    ungraded = f"; {one.n_ungraded:,} not graded by both" if one.n_ungraded else ""
    counts = f"{n['both_pass']:,} pass by both, {n['only_a']:,} by {a} alone, "
    counts += f"{n['only_b']:,} by {b} alone, {n['both_fail']:,} by neither{ungraded}"
    yield "verdicts", who + counts
    same = "" if one.same_answer is None else f"; the same answer in {one.same_answer:.1%}"
    yield "agreement", f"{one.rates.agreement.format()}, kappa {one.rates.kappa.format()}, by case{same}"


def unmatched_text(one: UnmatchedCases, most: int = 5) -> str:
    """How many cases only one side has, and the first of them."""
    said = []
    for name, cases in ((one.name_a, one.only_a), (one.name_b, one.only_b)):
        if cases:
            more = ", …" if len(cases) > most else ""
            names = ", ".join(shorten_name(case, _ID) for case in cases[:most])
            said.append(f"{format_count(len(cases), 'case')} only in {_short(name)}: {names}{more}")
    return "; ".join(said)


def changed_rows(found: ComparisonReport) -> list[tuple[str, str]]:
    """How many cases changed, each way, a row a pair."""
    if found.verdict is None:
        return []
    pairs = dict.fromkeys((d.name_a, d.name_b) for d in found.differences)
    return [("changed", changed_text(found, a, b)) for a, b in pairs]


def changed_text(found: ComparisonReport, a: str, b: str) -> str:
    """How many changed from one side to the other, both ways."""
    ways = [c.way for c in found.changed if (c.name_a, c.name_b) == (a, b)]
    up, down, other = (ways.count(way) for way in ("up", "down", "other"))
    a, b = _short(a), _short(b)
    if found.kind == "runs":
        return f"{found.verdict}: {up:,} pass in {b} and not in {a}, {down:,} the other way round"
    if found.kind == "graders":
        more = f"; {other:,} more have other answers and the same verdict" if other else ""
        return f"{up:,} candidates pass by {b} and not by {a}, {down:,} the other way round{more}"
    said = f"{b} and {a} pick differently in {format_count(len(ways), 'case')}"
    return f"{said}: {up:,} pass as {b} picks and not as {a} does, {down:,} the other way round"


def selection_parts(found: ComparisonReport) -> dict[str, str]:
    """Heading of each column of the table of selectors, and the part of a `Selection` that it holds.

    Of 0/1 values whether the pick passes is its value; of others the two are different numbers with names of their own.
    """
    rest = ("oracle", "headroom", "regret", "agreement", "chance")
    if found.verdict == "selected":
        return {name: name for name in ("selected", "mean", *rest)}
    return {"selected": "selected", "selected_pass": "selected_pass", "pass@1": "mean", **{n: n for n in rest}}


def _selections(found: ComparisonReport) -> list[Grid]:
    """The table of selectors, where selectors were compared."""
    if not found.selections:
        return []
    level = interval_heading(found.rules.level)
    first, *rest = selection_parts(found).items()
    rows = tuple(
        (
            shorten_name(s.selector.name, 24),
            shorten_name(s.selector.by, 24) + (", low" if s.selector.prefer == "low" else ""),
            format_number(getattr(s, first[1]).point),
            format_interval(getattr(s, first[1]).low, getattr(s, first[1]).high),
            *(format_number(getattr(s, part).point) for _, part in rest),
        )
        for s in found.selections
    )
    header = ("selector", "picks by", first[0], level, *(name for name, _ in rest))
    return [Grid("", header, rows, tuple(i > 1 for i in range(len(header))))]


# the cases that changed


def _changed_parts(found: ComparisonReport, style: Style, width: int, most: int) -> list[list[str]]:
    """The first changed cases of every pair and way, each with what both sides had to show."""
    parts = []
    for a, b in dict.fromkeys((c.name_a, c.name_b) for c in found.changed):
        for way in ("down", "up") if found.kind == "selectors" else WAYS:
            of_way = [c for c in found.changed if (c.name_a, c.name_b, c.way) == (a, b, way)]
            parts += [_changed_lines(c, style, width) for c in of_way[:most]]
            if most and len(of_way) > most:
                more = f"and {len(of_way) - most:,} more {WAYS[way]}; --changed N shows N, --json and --html all"
                parts.append(styled_lines(more, style, "dim", width))
    return parts


def _changed_lines(c: ChangedCase, style: Style, width: int) -> list[str]:
    role = {"up": "good", "down": "bad"}.get(c.way, "strong")
    verdicts = " → ".join(VERDICTS[v] for v in (c.passed_a, c.passed_b))
    expected = f", reference {shorten_name(' '.join(c.reference.split()), 40)}" if c.reference is not None else ""
    lines = [f"{style(shorten_name(c.case, _ID), 'strong')}  {style(verdicts, role)}{expected}"]
    if c.input is not None:
        lines.append(f"  {style(excerpt(c.input, None, width - 2, end=False), 'dim')}")
    pad = min(_NAME, max(display_width(shorten_name(name, _NAME)) for name in (c.name_a, c.name_b)))
    for name, candidates in ((c.name_a, c.a), (c.name_b, c.b)):
        lines += _side_lines(shorten_name(name, pad), candidates, pad, width)
    return lines


def _side_lines(name: str, candidates: Sequence[CandidateExcerpt], pad: int, width: int) -> list[str]:
    """A line a candidate: pass or fail, its answer, and the text around it."""
    lines = []
    for i, one in enumerate(example_candidates(candidates)):
        sign = {True: "✓", False: "✗", None: "?"}[one.passed]
        label = name if i == 0 else ""
        answer = "-" if one.answer is None else shorten_name(" ".join(one.answer.split()), 16)
        start = (
            f"  {label}{' ' * (pad - display_width(label))}  {sign} {answer}{' ' * max(0, 8 - display_width(answer))}  "
        )
        text = "" if one.text is None else excerpt(one.text, one.answer, max(12, width - display_width(start)))
        lines.append((start + text).rstrip())
    if len(candidates) > CANDIDATES:
        passing = sum(one.passed is True for one in candidates)
        lines.append(f"  {' ' * pad}  {passing} of {len(candidates)} pass")
    return lines or [f"  {name}  no candidates"]


def example_candidates(candidates: Sequence[CandidateExcerpt], most: int = CANDIDATES) -> list[CandidateExcerpt]:
    """The first few candidates, one that passes and one that fails among them where there are such."""
    # reversed: the first of each kind is written last and stays
    first = {one.passed: one for one in reversed(candidates)}
    chosen = [first[kind] for kind in (True, False) if kind in first]
    chosen += [one for one in candidates if one not in chosen]
    return sorted(chosen[:most], key=lambda one: one.index)


def excerpt(text: str, answer: str | None, width: int, *, end: bool = True) -> str:
    """At most `width` columns of a text: around its answer, else its end (or its start).

    >>> excerpt("one two three four five", None, 10), excerpt("one two three four five", "two", 11)
    ('…four five', 'one two th…')
    """
    flat = " ".join(text.split())
    if display_width(escape_controls(flat)) <= width:
        return escape_controls(flat)

    place = locate(flat, answer) if answer is not None else None
    if place is None:
        low = max(0, len(flat) - width) if end else 0
    else:
        low = max(0, min((place[0] + place[1] - width) // 2, len(flat) - width))
    # one character less where an ellipsis takes its place
    part = escape_controls(flat[low + (low > 0) : low + width])
    part = ("…" if low else "") + part
    more = low + width < len(flat)
    return shorten_name(part + ("………" if more else ""), width)


# tables to paste: a row a system, a column a number


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A value, the letters of the systems it is better than, and whether it is the best of its column."""

    value: float | None
    beats: str
    best: bool


def letter(at: int) -> str:
    """The letter a system goes by.

    >>> letter(0), letter(25), letter(26)
    ('a', 'z', 'aa')
    """
    # as spreadsheets name columns
    return (letter(at // 26 - 1) if at >= 26 else "") + chr(97 + at % 26)


def column_cells(found: ComparisonReport, level: ValueLevel) -> list[TableCell]:
    """A column of the table.

    One is best that has the best value and is better, beyond chance, than every system it was compared with; where
    neither more nor less is better there is no best.
    """
    key = (level.metric, level.aggregator, level.segment)
    of = [d for d in found.differences if (d.metric, d.aggregator, d.segment) == key]
    known = [v for v in level.values if v is not None]
    top = None if not known or level.more_is_better is None else (max if level.more_is_better else min)(known)
    return [_cell(i, value, of, top) for i, value in enumerate(level.values)]


def _cell(at: int, value: float | None, of: list[Difference], top: float | None) -> TableCell:
    met = [d for d in of if at in d.sides]
    # (the winner, the loser): the better side, or the higher where neither is better
    won = [d.sides[::-1] if d.word in ("better", "higher") else d.sides for d in met if d.holds]
    beaten = sorted(loser for winner, loser in won if winner == at)
    best = value is not None and value == top and bool(met) and len(beaten) == len(met)
    return TableCell(value=value, beats=",".join(map(letter, beaten)), best=best)


def caption(found: ComparisonReport, quoted: Callable[[str], str] = str) -> list[str]:
    """What the marks mean: the test, the level, the cases. `quoted` shows a name."""
    levels = sorted({level.n for level in found.levels if level.segment is None})
    cases = f"{levels[0]:,}" if len(levels) == 1 else f"{levels[0]:,} to {levels[-1]:,}"
    pairs = {d.comparison.n for d in found.differences if d.segment is None}
    neutral = [level.aggregator for level in found.levels if level.more_is_better is None]
    higher = f" (higher, for {', '.join(map(quoted, dict.fromkeys(neutral)))})" if neutral else ""
    tests = format_count(found.n_tests, "test")
    test = f"paired permutation test by case, p < {found.rules.alpha:g} after Holm over"
    return [
        f"Means over n = {cases} cases.",
        *(["Each pair is tested on the cases that both have."] if pairs - set(levels) else []),
        f"A superscript names the systems that one is better than{higher}: {test} {tests}.",
        "Bold: the best value, where it is better than every system it was compared with.",
    ]


def _titles(found: ComparisonReport) -> list[str]:
    """The title of every column: its number, and the metric where there are several."""
    columns = dict.fromkeys((level.metric, level.aggregator) for level in found.levels)
    return [_title(found, metric, number) for metric, number in columns]


def _title(found: ComparisonReport, metric: str, number: str) -> str:
    several = len({level.metric for level in found.levels}) > 1
    return f"{number} ({metric})" if several and metric else number


def _rows(found: ComparisonReport) -> Iterator[tuple[str | None, int, list[TableCell]]]:
    """(segment, place of the system, its cells), segment by segment."""
    by_segment: dict[str | None, list[list[TableCell]]] = {}
    for level in found.levels:
        by_segment.setdefault(level.segment, []).append(column_cells(found, level))
    for segment, columns in by_segment.items():
        for i in range(len(found.names)):
            yield segment, i, [column[i] for column in columns]


# Markdown


def comparison_markdown(found: ComparisonReport) -> str:
    """The table of values, what its marks mean, and the table of differences."""
    sliced = any(level.segment is not None for level in found.levels)
    header = ["", *(["segment"] if sliced else []), "system"]
    first = len(header)
    header += map(escape_prose, _titles(found))
    rows = [
        [
            letter(i),
            *(["all" if segment is None else code_name(segment)] if sliced else []),
            code_name(found.names[i]),
            *(_shown(cell, "–", "**{}**", "<sup>{}</sup>") for cell in row),
        ]
        for segment, i, row in _rows(found)
    ]
    values = markdown_table(header, [i >= first for i in range(len(header))], rows)
    warned = [f"- {escape_prose(str(w))}" for w in found.warnings]
    parts = [
        sentences(found, code_name, escape_prose),
        values,
        [" ".join(caption(found, code_name))],
        _differences(found),
    ]
    parts += [["Warnings:", "", *warned]] if warned else []
    return "\n\n".join("\n".join(part) for part in parts)


def _shown(cell: TableCell, none: str, best: str, beats: str) -> str:
    """A value; `best` and `beats` are the markup around the best of a column and around the letters."""
    if cell.value is None:
        return none
    text = best.format(f"{cell.value:.3f}") if cell.best else f"{cell.value:.3f}"
    return text + (beats.format(cell.beats) if cell.beats else "")


def _differences(found: ComparisonReport) -> list[str]:
    level = format_level(found.rules.level)
    sliced = any(d.segment is not None for d in found.differences)
    header = ["compared", *(["segment"] if sliced else []), "number", f"difference [{level} interval]", "p",
              "p (Holm)", "better / alike / worse cases", "cases"]  # fmt: skip
    rows = [
        [
            f"{letter(d.sides[1])} - {letter(d.sides[0])}",
            *(["all" if d.segment is None else code_name(d.segment)] if sliced else []),
            escape_prose(_title(found, d.metric, d.aggregator)),
            f"{format_signed(d.comparison.difference)} {format_interval(d.comparison.low, d.comparison.high)}",
            format_p(d.comparison.p) + ("†" if d.interval_agrees is False else ""),
            format_p(d.p_holm) + (f" {d.word}" if d.holds else ""),
            "{:,} / {:,} / {:,}".format(*better_alike_worse(d)),
            f"{d.comparison.n:,}",
        ]
        for d in found.differences
    ]
    return markdown_table(header, [h not in ("compared", "segment", "number") for h in header], rows)


# LaTeX


def comparison_latex(found: ComparisonReport) -> str:
    """A table for a paper. The document needs the package booktabs."""
    sliced = any(level.segment is not None for level in found.levels)
    columns = list(map(escape_latex, _titles(found)))
    said = escape_latex(" ".join([*caption(found), *(f"Warning: {w}." for w in found.double_dipping)]))
    head = ["", *(["Segment"] if sliced else []), "System", *columns]
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{said}}}",
        "  \\label{tab:comparison}",
        f"  \\begin{{tabular}}{{{'l' * (len(head) - len(columns))}{'r' * len(columns)}}}",
        "    \\toprule",
        f"    {' & '.join(head)} \\\\",
    ]
    # no segment is called "", so the first row always starts one
    before: str | None = ""
    for segment, i, row in _rows(found):
        lines += ["    \\midrule"] if segment != before else []
        where = [escape_latex("all" if segment is None else segment) if segment != before else ""] if sliced else []
        cells = [_shown(cell, "--", r"\textbf{{{}}}", r"\textsuperscript{{{}}}") for cell in row]
        lines.append(f"    {' & '.join([letter(i), *where, escape_latex(found.names[i]), *cells])} \\\\")
        before = segment
    return "\n".join([*lines, "    \\bottomrule", "  \\end{tabular}", "\\end{table}"])
