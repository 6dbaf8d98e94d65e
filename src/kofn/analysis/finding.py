"""What an analysis says first: one sentence with its number, interval and p-value, the same in every output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The headline of an analysis. `numbers` is what the sentence is made of, as plain data.

    >>> Finding(text="any@5 0.850", numbers={"point": 0.85}).to_dict()
    {'text': 'any@5 0.850', 'point': 0.85}
    """

    text: str
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """As JSON prints it, under `headline`."""
        return {"text": self.text, **self.numbers}
