"""The objects of a JSON lines file one at a time, each with its line, for importers of other tools' logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.importers.json_records import parse_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kofn.importers.base import Peek


def objects(peek: Peek, *needed: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """("line 7", object) of every line that is not blank; an object without a needed key is an error."""
    with peek.path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            record = parse_line(line.removeprefix(b"\xef\xbb\xbf"), f"{peek.source}: line {number}")
            for name in needed:
                if name not in record:
                    seen = ", ".join(list(record)[:8])
                    raise InputError(
                        f"{peek.source}: line {number}: no {name!r}: expected it on every line, found {seen}"
                    )
            yield f"line {number}", record
