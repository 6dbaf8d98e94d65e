"""A comparison as a table to paste: Markdown for a pull request, LaTeX (booktabs) for a paper.

A row a system, a column a number. Superscripts name the systems that one is better than, by a test that the caption
names; nothing else is marked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kofn.core.escape import code_name, escape_latex, escape_prose, markdown_table
from kofn.core.format import format_count, format_interval, format_level, format_p, format_signed
from kofn.render.comparison_text import sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kofn.analysis.compare.differences import ComparisonReport, Difference, ValueLevel


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
    beaten = sorted(_other(d, at) for d in met if _beats(d, at))
    best = value is not None and value == top and bool(met) and len(beaten) == len(met)
    return TableCell(value=value, beats=",".join(map(letter, beaten)), best=best)


def _other(d: Difference, at: int) -> int:
    return d.sides[0] if d.sides[1] == at else d.sides[1]


def _beats(d: Difference, at: int) -> bool:
    """Whether a side is better than the other, or higher where neither is better."""
    winner = d.sides[1] if d.word in ("better", "higher") else d.sides[0]
    return d.holds and winner == at


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


def _header(found: ComparisonReport) -> list[tuple[str, str]]:
    """(metric, number) of every column; titles name the metric where there are several."""
    return list(dict.fromkeys((level.metric, level.aggregator) for level in found.levels))


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
    header += [escape_prose(_title(found, *column)) for column in _header(found)]
    rows = [
        [
            letter(i),
            *(["all" if segment is None else code_name(segment)] if sliced else []),
            code_name(found.names[i]),
            *map(_markdown_cell, row),
        ]
        for segment, i, row in _rows(found)
    ]
    values = markdown_table(header, [i >= first for i in range(len(header))], rows)
    beware = [f"- {escape_prose(str(w))}" for w in found.warnings]
    parts = [sentences(found, code_name), values, [" ".join(caption(found, code_name))], _differences(found)]
    parts += [["Beware:", "", *beware]] if beware else []
    return "\n\n".join("\n".join(part) for part in parts)


def _markdown_cell(cell: TableCell) -> str:
    if cell.value is None:
        return "–"
    text = f"**{cell.value:.3f}**" if cell.best else f"{cell.value:.3f}"
    return f"{text}<sup>{cell.beats}</sup>" if cell.beats else text


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
            format_p(d.comparison.p),
            format_p(d.p_holm) + (f" {d.word}" if d.holds else ""),
            _counts(d),
            f"{d.comparison.n:,}",
        ]
        for d in found.differences
    ]
    return markdown_table(header, [h not in ("compared", "segment", "number") for h in header], rows)


def _counts(d: Difference) -> str:
    c = d.comparison
    better, worse = (c.losses, c.wins) if d.more_is_better is False else (c.wins, c.losses)
    return f"{better:,} / {c.ties:,} / {worse:,}"


# LaTeX


def comparison_latex(found: ComparisonReport) -> str:
    """A table for a paper. The document needs the package booktabs."""
    sliced = any(level.segment is not None for level in found.levels)
    columns = _header(found)
    lines = [*caption(found), *(f"Beware: {w}." for w in found.double_dipping)]
    head = [
        "",
        *(["Segment"] if sliced else []),
        "System",
        *(escape_latex(_title(found, *column)) for column in columns),
    ]
    lines = [
        "% needs \\usepackage{booktabs}",
        "\\begin{table}",
        "  \\centering",
        f"  \\caption{{{escape_latex(' '.join(lines))}}}",
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
        lines.append(
            f"    {' & '.join([letter(i), *where, escape_latex(found.names[i]), *map(_latex_cell, row)])} \\\\"
        )
        before = segment
    return "\n".join([*lines, "    \\bottomrule", "  \\end{tabular}", "\\end{table}"])


def _latex_cell(cell: TableCell) -> str:
    if cell.value is None:
        return "--"
    text = f"\\textbf{{{cell.value:.3f}}}" if cell.best else f"{cell.value:.3f}"
    return f"{text}\\textsuperscript{{{cell.beats}}}" if cell.beats else text
