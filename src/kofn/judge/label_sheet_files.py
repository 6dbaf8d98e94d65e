"""A label sheet as a file: CSV, JSON lines, or a page to label in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.judge.labelling_page import labelling_page
from kofn.judge.labels import DANGEROUS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kofn.judge.label_sheet import LabelSample


SHEET_SUFFIXES = (".csv", ".jsonl", ".html")


def write_sheet(sheet: LabelSample, path: Path, name: str) -> None:
    """Write CSV, JSON lines or a page, by the suffix."""
    suffix = path.suffix.lower()
    if suffix not in SHEET_SUFFIXES:
        raise InputError(f"{path}: expected a name that ends in {', '.join(SHEET_SUFFIXES)}")
    if suffix == ".html":
        path.write_text(labelling_page(sheet, name), encoding="utf-8")
    elif suffix == ".csv":
        path.write_text(csv_text(sheet.rows), encoding="utf-8", newline="")
    else:
        import orjson

        path.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in sheet.rows))


def csv_text(rows: Sequence[dict[str, Any]]) -> str:
    """CSV in which no cell is a formula; several outputs stand one below the other, numbered.

    >>> csv_text([{"id": "q1", "outputs": ["a", "b"], "human": None}]).splitlines()
    ['id,outputs,human', 'q1,"[1]', 'a', '', '[2]', 'b",']
    """
    import csv
    import io

    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name != "human"] + ["human"]
    out = io.StringIO()
    writer = csv.writer(out)  # lines end as RFC 4180 says, so that a lone carriage return in a cell is quoted
    writer.writerow([guard_formula(name) for name in names])
    writer.writerows([[guard_formula(_cell(row.get(name))) for name in names] for row in rows])
    return out.getvalue()


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "\n\n".join(f"[{i}]\n{'' if text is None else text}" for i, text in enumerate(value, 1))
    return "" if value is None else str(value)


def guard_formula(cell: str) -> str:
    """A cell that a spreadsheet does not take for a formula: a quote before = + - @, a tab or a line break.

    A quote is put before a quote as well, so that reading takes away exactly what was put there.

    >>> guard_formula("=HYPERLINK(1)"), guard_formula("plain"), guard_formula("-5")
    ("'=HYPERLINK(1)", 'plain', "'-5")
    """
    return f"'{cell}" if cell.startswith((*DANGEROUS, "'")) else cell
