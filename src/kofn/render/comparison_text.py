"""A comparison as text for a terminal, and as a document for a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.core.document import Document, Grid, display_width, grid_lines, interval_cells
from kofn.core.escape import escape_controls
from kofn.core.format import format_count, format_interval, format_number, format_p, format_signed
from kofn.extract.answer_spans import locate
from kofn.render.run_text import shorten_name, wrap_columns
from kofn.render.trend_text import interval_heading
from kofn.stats.estimates import SMALL_SEGMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kofn.analysis.compare.differences import (
        CandidateExcerpt,
        ChangedCase,
        ComparisonReport,
        Difference,
        GraderAgreement,
        UnmatchedCases,
    )

    Style = Callable[[str, str], str]

DROP_FIRST = (
    "McNemar",
    "missing",
    "names",
    "cases",
    "p",
    "+/=/-",
    "a",
    "b",
)  # columns to leave out where a terminal is narrow
MOST_SAID = 2  # pairs that get a sentence each
MOST_NAMED = 6  # differences that hold, by name
CANDIDATES = 3  # of a side of a changed case
_NAME, _ID, _LABEL = 14, 40, 12
_ROLES = {"better": "good", "worse": "bad", "higher": "strong", "lower": "strong"}
WAYS = {"down": "pass → fail", "up": "fail → pass", "other": "with the same verdict"}


def format_comparison(
    found: ComparisonReport, style: Style = lambda text, _: text, *, width: int = 100, changed: int = 3
) -> str:
    """The comparison as text of at most `width` columns where its tables allow; `changed` cases of each way."""
    parts = [
        [style(line, "strong") for line in wrap_columns(escape_controls(comparison_title(found)), width)]
        + _sentence_lines(found, width),
        *_tables(found, style, width),
        _selection_lines(found, style, width),
        _labelled_lines(_facts(found), style, width),
        *_changed_parts(found, style, width, changed),
        [line for warning in found.warnings for line in _warning_lines(str(warning), style, width)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if part)


def comparison_title(found: ComparisonReport) -> str:
    """Who is compared with whom, on what."""
    first, *rest = (shorten_name(name, 40) for name in found.names)
    every = len({d.sides for d in found.differences}) > len(rest)
    who = f"every two of {', '.join((first, *rest))}" if every else f"{', '.join(rest)} against {first}"
    return f"{who}: {found.about}"


def main_difference(found: ComparisonReport, sides: tuple[int, int]) -> Difference:
    """The one to speak of: the number that decides about cases where it was compared, else the first."""
    of_pair = [d for d in found.differences if d.sides == sides and d.segment is None]
    # the verdict's number, since the changed cases changed by it
    return next((d for d in of_pair if d.aggregator == found.verdict), of_pair[0])


def sentences(found: ComparisonReport, quoted: Callable[[str], str] = str) -> list[str]:
    """What was found, a sentence a pair (of many, those that hold), and how much holds. `quoted` shows a name."""
    mains = [main_difference(found, sides) for sides in dict.fromkeys(d.sides for d in found.differences)]
    stated = mains if len(mains) <= MOST_SAID else [d for d in mains if d.holds][:MOST_SAID]
    return [*(_sentence(d, quoted) for d in stated), *filter(None, [verdict_sentence(found, quoted)])]


def _sentence(d: Difference, quoted: Callable[[str], str]) -> str:
    c, a, b = d.comparison, quoted(d.name_a), quoted(d.name_b)
    number = f"{quoted(d.aggregator)}{f' of {quoted(d.metric)}' if d.metric else ''}"
    if not c.n:
        return f"{b} and {a} share no case that has {number}."
    size = f"{format_signed(c.difference)} {format_interval(c.low, c.high)}, p {format_p(c.p)}"
    adjusted = f", {format_p(d.p_holm)} after Holm" if d.p_holm != c.p else ""
    if d.holds:
        return f"{b} is {d.word} than {a} on {number}: {size}{adjusted}."
    # significant by itself, not after the adjustment: said, so that nobody wonders about the small p
    if c.p is not None and c.p < d.alpha and d.sign:
        return f"{b} against {a} on {number}: {size}{adjusted}: not beyond chance, for so many tests."
    return f"No difference on {number} between {a} and {b} beyond chance: {size}{adjusted}."


def verdict_sentence(found: ComparisonReport, quoted: Callable[[str], str] = str) -> str:
    """How many differences hold, by what rule, and which."""
    holding, total = [d for d in found.differences if d.holds], len(found.differences)
    if total == 1:
        return ""
    same = f", {found.n_tests} of them different tests" if found.n_tests < total else ""
    said = f"{len(holding)} of {total} differences hold after Holm (p below {found.rules.alpha:g}{same})"
    several = len({d.sides for d in found.differences}) > 1
    names = [_place(d, quoted, several=several) for d in holding]
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{said}{': ' if names else ''}{', '.join(names[:MOST_NAMED])}{more}."


def _place(d: Difference, quoted: Callable[[str], str], *, several: bool) -> str:
    where = "" if d.segment is None else f" in {quoted(d.segment)}"
    pair = f" of {quoted(d.name_b)} against {quoted(d.name_a)}" if several else ""
    return f"{quoted(d.aggregator)}{where}{pair} ({d.word})"


def _short(name: str) -> str:
    return shorten_name(name, _ID)


def _sentence_lines(found: ComparisonReport, width: int) -> list[str]:
    return [line for text in sentences(found, _short) for line in wrap_columns(escape_controls(text), width)]


# the table of differences


def _tables(found: ComparisonReport, style: Style, width: int) -> list[list[str]]:
    """A table a pair, and one for each field it is sliced by; pairs of one row each share a table."""
    parts = []
    for words, rows, together in _groups(found):
        head = [style(line, "strong") for line in wrap_columns(escape_controls(words), width)] if words else []
        parts.append(head + _table(rows, style, width, pairs=together))
    return parts


def _groups(found: ComparisonReport) -> Iterable[tuple[str, list[Difference], bool]]:
    """What stands in one table: its title, its rows, and whether each is of another pair."""
    groups: dict[tuple[tuple[int, int] | None, str], list[Difference]] = {}
    pairs = {d.sides for d in found.differences}
    together = len(pairs) > 1 and len(pairs) == len(found.differences)
    for d in found.differences:
        by = "" if d.segment is None else d.segment.partition("=")[0]
        groups.setdefault((None if together else d.sides, by), []).append(d)
    for (_, by), rows in groups.items():
        names = f"{_short(rows[0].name_b)} against {_short(rows[0].name_a)}" if len(pairs) > 1 and not together else ""
        yield ", ".join(filter(None, [names, f"by {by}" if by else ""])), rows, together


def comparison_document(found: ComparisonReport) -> Document:
    """The same for a notebook: every difference drawn, what changed as counts."""
    return Document(
        headline=(comparison_title(found), *sentences(found, _short)),
        grids=(*(_drawing_grid(*group) for group in _groups(found)), *_selections(found)),
        notes=tuple(_facts(found)),
        warnings=tuple(map(str, found.warnings)),
    )


def _drawing_grid(words: str, rows: Sequence[Difference], pairs: bool) -> Grid:
    """A table of differences with a column that draws them, 0 in its middle."""
    header, cells = _cells(rows, pairs=pairs)
    every = [
        abs(x) for d in rows for x in (d.comparison.low, d.comparison.difference, d.comparison.high) if x is not None
    ]
    # symmetric around 0, so that no difference is in the middle of every row
    most = max(every, default=0.0) or 1.0
    sides = {} if pairs else {"a": shorten_name(rows[0].name_a, _NAME), "b": shorten_name(rows[0].name_b, _NAME)}
    kept = [i for i in range(len(header)) if header[i] == "" or any(row[i] not in ("", "-") for row in cells)]
    at = kept.index(header.index("")) if "" in header else len(kept)
    names = [sides.get(header[i], header[i]) for i in kept]
    right = [header[i] not in ("compared", "metric", "number", "segment", "") for i in kept]
    body = []
    for d, row in zip(rows, cells, strict=True):
        c = d.comparison
        bar = "" if c.difference is None else interval_cells(c.low, c.difference, c.high, (-most, most))
        cells_kept = [row[i] for i in kept]
        body.append((*cells_kept[:at], bar, *cells_kept[at:]))
    axis = f"{-most:+.2g}  {most:+.2g}"
    return Grid(words, (*names[:at], axis, *names[at:]), tuple(body), (*right[:at], False, *right[at:]))


def _table(rows: Sequence[Difference], style: Style, width: int, *, pairs: bool) -> list[str]:
    """The rows with as many columns as fit; where the sides' names do not, they are called a and b."""
    header, cells = _cells(rows, pairs=pairs)
    dropped = {name for i, name in enumerate(header) if name and all(row[i] in ("", "-") for row in cells)}
    named = not pairs
    # "": first with all columns
    for name in ("", *DROP_FIRST):
        dropped |= {name} - {""}
        named = named and name != "names"
        kept = [i for i, h in enumerate(header) if h not in dropped]
        sides = {"a": shorten_name(rows[0].name_a, _NAME), "b": shorten_name(rows[0].name_b, _NAME)} if named else {}
        names = tuple(sides.get(header[i], header[i]) for i in kept)
        right = tuple(header[i] not in ("compared", "metric", "number", "segment", "") for i in kept)
        lines = grid_lines(Grid("", names, tuple(tuple(row[i] for i in kept) for row in cells), right), lambda t, _: t)
        if max(display_width(line) for line in lines) <= width:
            break
    stated = (
        [] if named or pairs else wrap_columns(f"a is {_short(rows[0].name_a)}, b is {_short(rows[0].name_b)}", width)
    )
    body = [_color_mark(line, d, style) for line, d in zip(lines[1:], rows, strict=True)]
    return [*(style(line, "dim") for line in stated), style(lines[0], "head"), *body]


def _cells(rows: Sequence[Difference], *, pairs: bool) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
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
                format_p(c.p),
                format_p(d.p_holm),
                format_p(c.mcnemar_p),
                f"{c.wins:,}/{c.ties:,}/{c.losses:,}",
                f"{c.n:,}",
                f"{c.n_missing:,}" if c.n_missing else "",
            )
        )
    return header, out


def difference_mark(d: Difference) -> str:
    """▲ or ▼ and a word where a difference holds, · where it may be noise."""
    if d.p_holm is None:
        return ""
    return f"{'▲' if d.sign > 0 else '▼'} {d.word}" if d.holds else "·"


def _color_mark(line: str, d: Difference, style: Style) -> str:
    if not d.holds:
        return line
    before, mark, after = line.rpartition(difference_mark(d))  # the last: a name may look so too
    return before + style(mark, _ROLES[d.word]) + after


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


def _selection_lines(found: ComparisonReport, style: Style, width: int) -> list[str]:
    """What every selector makes of the candidates there are, with the columns that fit."""
    lines: list[str] = []
    for grid in _selections(found):
        level = grid.header[3]
        for dropped in ((), ("picks by",), ("picks by", "chance"), ("picks by", "chance", level)):
            kept = [i for i, h in enumerate(grid.header) if h not in dropped]
            cells = tuple(tuple(row[i] for i in kept) for row in grid.rows)
            right = tuple(grid.right[i] for i in kept)
            lines = grid_lines(Grid("", tuple(grid.header[i] for i in kept), cells, right), style)
            if max(display_width(line) for line in lines[1:]) <= width:
                break
    return lines


def _selections(found: ComparisonReport) -> list[Grid]:
    """The table of selectors, where selectors were compared."""
    if not found.selections:
        return []
    level = interval_heading(found.rules.level)
    header = ("selector", "picks by", "selected", level, "mean", "oracle", "headroom", "regret", "agreement", "chance")
    rows = tuple(
        (
            shorten_name(s.selector.name, 24),
            shorten_name(s.selector.by, 24) + (", low" if s.selector.prefer == "low" else ""),
            format_number(s.selected.point),
            format_interval(s.selected.low, s.selected.high),
            *(
                format_number(getattr(s, n).point)
                for n in ("mean", "oracle", "headroom", "regret", "agreement", "chance")
            ),
        )
        for s in found.selections
    )
    return [Grid("", header, rows, tuple(i > 1 for i in range(len(header))))]


def _labelled_lines(rows: Sequence[tuple[str, str]], style: Style, width: int) -> list[str]:
    lines = []
    for label, text in rows:
        first, *rest = wrap_columns(escape_controls(text), max(20, width - _LABEL))
        lines += [style(label.ljust(_LABEL), "dim") + first, *(" " * _LABEL + line for line in rest)]
    return lines


def _warning_lines(text: str, style: Style, width: int) -> list[str]:
    first, *rest = wrap_columns(escape_controls(text), width - 2)
    return [f"{style('!', 'warn')} {first}", *(f"  {line}" for line in rest)]


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
                parts.append([style(line, "dim") for line in wrap_columns(more, width)])
    return parts


def _changed_lines(c: ChangedCase, style: Style, width: int) -> list[str]:
    role = {"up": "good", "down": "bad"}.get(c.way, "strong")
    verdicts = " → ".join({True: "pass", False: "fail", None: "neither"}[v] for v in (c.passed_a, c.passed_b))
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
