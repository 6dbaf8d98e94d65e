"""The result of an evaluation: estimates, diagnostics, warnings and the checklist."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kofn.core.display import Displayable
from kofn.core.warnings import DOUBLE_DIPPING, warnings_dict, with_code
from kofn.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.candidate_sets import Floats
    from kofn.core.document import ChecklistLine
    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning
    from kofn.scoring.grade import Graded


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(Displayable):
    """What an evaluation found. Prints as a table; `estimates` holds the numbers.

    `judges` says of each metric that a model graded which model, with which prompt and parameters: `kofn.judge`.
    `parent` is the run whose outputs were graded again, with what changed.
    `source_warnings` are those about how outputs and verdicts were made: nothing else here shows that.
    """

    # by name: `render` is a higher layer, loaded when the result is printed
    view: ClassVar[str] = "kofn.render.result_text:result_document"
    printer: ClassVar[str] = "kofn.render.result_text:format_result"

    n_cases: int
    n_candidates: int
    n_missing: int
    understood: Mapping[str, Any]
    estimates: tuple[Estimate, ...]
    extraction: Mapping[str, Any]
    diagnostics: Mapping[str, Any]
    warnings: tuple[CodedWarning, ...] = ()
    judges: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    checklist: tuple[ChecklistLine, ...] = ()
    source_warnings: tuple[CodedWarning, ...] = ()
    scored: tuple[Graded, ...] = field(default=(), repr=False)
    case_values: Mapping[tuple[str, str], Floats] = field(default_factory=dict, repr=False)
    table: Table | None = field(default=None, repr=False)
    parent: Mapping[str, Any] | None = None

    def with_table(
        self, table: Table, scored: Sequence[Graded], case_values: Mapping[tuple[str, str], Floats]
    ) -> ScoredResult:
        """The result with the candidates that it is of."""
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return ScoredResult(**named | {"table": table, "scored": tuple(scored), "case_values": case_values})

    def to_dict(self) -> dict[str, Any]:
        """As `kofn score --json` prints it."""
        return {
            "n_cases": self.n_cases,
            "n_candidates": self.n_candidates,
            "n_missing": self.n_missing,
            "understood": dict(self.understood),
            "estimates": [estimate_dict(e) for e in self.estimates],
            "extraction": dict(self.extraction),
            "diagnostics": dict(self.diagnostics),
            **warnings_dict(self.warnings),
            "judges": {name: dict(judge) for name, judge in self.judges.items()},
            "checklist": [line.to_dict() for line in self.checklist],
            "told": list(map(str, self.source_warnings)),  # its name in run.json and in --json since schema 1
            **({} if self.parent is None else {"parent": dict(self.parent)}),
        }

    def with_warnings(self, warnings: Sequence[CodedWarning]) -> Self:
        """The same with more warnings about how outputs and verdicts were made, before all others."""
        # once each: a run that is read and scored again brings its warnings along
        new = [w for w in dict.fromkeys(warnings) if w not in self.source_warnings]
        return replace(self, source_warnings=(*new, *self.source_warnings), warnings=(*new, *self.warnings))

    @property
    def double_dipping(self) -> tuple[CodedWarning, ...]:
        """The warnings about a number that is picked and graded by the same judge or score."""
        return with_code(self.warnings, DOUBLE_DIPPING)

    def rows(self) -> list[dict[str, Any]]:
        """One row per estimate."""
        return [estimate_dict(e) for e in self.estimates]

    def get(self, aggregator: str, *, metric: str | None = None, segment: str | None = None) -> Estimate:
        """The estimate of this aggregator."""
        for e in self.estimates:
            if e.aggregator == aggregator and e.segment == segment and metric in (None, e.metric):
                return e

        raise UnknownName("estimate", aggregator, [e.aggregator for e in self.estimates])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScoredResult(Result):
    """A result that keeps its candidates: every one that is not of data read in parts."""

    table: Table = field(repr=False)


def estimate_dict(e: Estimate) -> dict[str, Any]:
    """An estimate as plain data, in a stable order."""
    names = ("metric", "aggregator", "segment", "point", "low", "high", "level", "n", "n_missing", "method")
    return {name: getattr(e, name) for name in names}
