"""Audits extraction: how far extractors agree on all outputs, and the score each would give."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from kofn.core.document import Displayable, estimate_dict
from kofn.core.format import format_count
from kofn.errors import InputError
from kofn.metrics import default_metric
from kofn.registry import check_unique
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.diagnostics import FAMILIES
from kofn.scoring.evaluate import result_of
from kofn.scoring.grade import find_answers, score_table, with_answers, with_labels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.core.table import Table
    from kofn.core.types import Estimate
    from kofn.core.warnings import CodedWarning
    from kofn.scoring.grade import Graded

NUMBERS = ("mean", "any_pass", "majority")
TEXTS = ("text", "last_line", "strip_reasoning")  # extractors of free text, which have no family


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One output that extractors read differently: their answers and verdicts by name; the text is untrusted."""

    case_id: str
    index: int
    reference: str | None
    answers: Mapping[str, str | None]
    passed: Mapping[str, bool | None]
    text: str

    @property
    def matters(self) -> bool:
        """Whether a verdict hangs on it."""
        return len(set(self.passed.values())) > 1

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtractionAudit(Displayable):
    """What several extractors make of the same outputs.

    agreement       a -> b -> share of the outputs where both give the same answer, none included
    n_failed        outputs without an answer
    metric          what compares answers with references; None where there are none
    estimates       the numbers over cases that each extractor would give
    disagreements   outputs on which not all agree, those first on which a verdict hangs
    """

    view: ClassVar[str] = "kofn.render.audit_report:audit_document"
    printer: ClassVar[str] = "kofn.render.audit_report:format_audit"

    names: tuple[str, ...]
    chosen: str
    n: int
    n_cases: int
    agreement: Mapping[str, Mapping[str, float]]
    n_failed: Mapping[str, int]
    metric: str | None
    estimates: Mapping[str, tuple[Estimate, ...]]
    disagreements: tuple[Disagreement, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[CodedWarning, ...] = ()
    sources: tuple[str, ...] = field(default=())

    @property
    def span(self) -> float | None:
        """The highest mean less the lowest; None where nothing is graded."""
        means = [e[0].point for e in self.estimates.values() if e and e[0].point is not None]
        return max(means) - min(means) if means else None

    @property
    def n_verdicts(self) -> int:
        """Outputs whose verdict depends on the extractor."""
        return sum(one.matters for one in self.disagreements)

    def rows(self) -> list[dict[str, Any]]:
        """One row per extractor: what it misses, and the numbers it would give."""
        return [
            {
                "extractor": name,
                "chosen": name == self.chosen,
                "n": self.n,
                "n_failed": self.n_failed[name],
                **{e.aggregator: e.point for e in self.estimates.get(name, ())},
            }
            for name in self.names
        ]

    def to_dict(self, most: int | None = None) -> dict[str, Any]:
        return {
            "extractors": list(self.names),
            "chosen": self.chosen,
            "n": self.n,
            "n_cases": self.n_cases,
            "agreement": {a: dict(row) for a, row in self.agreement.items()},
            "n_failed": dict(self.n_failed),
            "metric": self.metric,
            "estimates": {name: [estimate_dict(e) for e in es] for name, es in self.estimates.items()},
            "span": self.span,
            "n_disagreements": len(self.disagreements),
            "n_verdicts": self.n_verdicts,
            "disagreements": [one.to_dict() for one in self.disagreements[:most]],
            "told": [*map(str, self.warnings), *self.notes],  # the documented key of `kofn extract-audit --json`
            "coded_warnings": [warning.to_dict() for warning in self.warnings],
        }


def extractors_for(table: Table) -> tuple[str, ...]:
    """The extractor kofn would choose for these outputs, and its relatives.

    >>> from kofn.runs.load import load_table
    >>> from kofn.importers.base import ReadOptions
    >>> extractors_for(load_table([{"id": "q", "reference": "4", "outputs": ["2 + 2 = 4"]}], ReadOptions()))
    ('number', 'number_anchor', 'number_simple')
    """
    # answers that came with the file would be taken instead of an extractor
    rows = table.candidates.drop("answer", strict=False)
    chosen = find_answers(replace(table, candidates=rows), None).extractor
    if chosen is None:
        raise _no_texts(table)
    family = FAMILIES.get(chosen.partition("(")[0], TEXTS)
    return (chosen, *(name for name in family if name != chosen))


def _no_texts(table: Table) -> InputError:
    return InputError(f"{', '.join(table.sources) or 'these rows'}: no texts: nothing to extract from")


def audit_extractors(
    table: Table,
    names: Sequence[str],
    options: GradingConfig | None = None,
    *,
    read: Mapping[str, Sequence[str | None]] | None = None,
    notes: Sequence[str] = (),
) -> ExtractionAudit:
    """Compare extractors on every output of a table. `read` are answers by other readers, such as a model.

    All are graded by one metric, so that only the extractor differs: the one asked for, else the one that suits the
    first extractor.

    >>> from kofn.runs.load import load_table
    >>> from kofn.importers.base import ReadOptions
    >>> rows = [{"id": "q", "reference": "4", "outputs": ["2 + 2 = 4", "Answer: 4, as x = 1"]}]
    >>> found = audit_extractors(load_table(rows, ReadOptions()), ["number", "number_simple"])
    >>> found.agreement["number"]["number_simple"], found.span, found.disagreements[0].answers
    (0.5, 0.5, {'number': '4', 'number_simple': '1'})
    """
    options = options or GradingConfig()
    if "text" not in table.candidates.columns:
        raise _no_texts(table)
    check_unique(names, "extractor {} is there twice: compare it with another")
    if any(name.startswith("letter") for name in names):
        table = with_labels(table)
    answers = {name: find_answers(table, name) for name in names}
    for name, column in (read or {}).items():
        given = pl.Series("answer", column, dtype=pl.String)
        # named as the first extractor, so that references are reduced in the same way
        answers[name] = with_answers(table, given, extractor=names[0], reason=f"read by {name}")
    columns = {name: one.sets.answers for name, one in answers.items() if one.sets.answers is not None}
    graded: dict[str, Graded] = {}
    if "reference" in table.candidates.columns:
        # all under one metric
        metric = options.metrics[0] if options.metrics else default_metric(answers[names[0]].extractor or "text")
        graded = {name: score_table(table, one, [metric], options.threshold)[0] for name, one in answers.items()}
    own = replace(options, aggregate=options.aggregate or NUMBERS, by=(), extract=None, metrics=())
    n = table.n_candidates
    return ExtractionAudit(
        names=tuple(columns),
        chosen=names[0],
        n=n,
        n_cases=table.n_cases,
        agreement={
            a: {b: float(columns[a].eq_missing(columns[b]).sum()) / n if n else 1.0 for b in columns} for a in columns
        },
        n_failed={name: answers[name].n_failed for name in columns},
        metric=next((one.metric for one in graded.values()), None),
        estimates={name: result_of(table, [one], own).estimates for name, one in graded.items()},
        disagreements=_disagreements(table, columns, graded),
        notes=tuple(notes),
        warnings=table.notes,
        sources=table.sources,
    )


def _disagreements(
    table: Table, columns: Mapping[str, pl.Series], graded: Mapping[str, Graded]
) -> tuple[Disagreement, ...]:
    first = next(iter(columns.values()))
    differ = np.zeros(len(first), dtype=np.bool_)
    for column in columns.values():
        differ |= ~first.eq_missing(column).to_numpy()
    sizes = np.diff(table.offsets)
    owner = np.repeat(np.arange(table.n_cases), sizes)
    ids, texts = table.cases["case_id"], table.candidates["text"]
    references = table.candidates["reference"] if "reference" in table.candidates.columns else None
    verdicts: dict[int, bool] = {1: True, 0: False}
    found = []
    for row in np.flatnonzero(differ).tolist():
        reference = None if references is None else references[row]
        one = Disagreement(
            case_id=ids[int(owner[row])],
            index=row - int(table.offsets[owner[row]]),
            reference=" or ".join(map(str, reference)) if isinstance(reference, pl.Series) else reference,
            answers={name: column[row] for name, column in columns.items()},
            passed={name: verdicts.get(int(of.sets.passes[row])) for name, of in graded.items()},
            text=texts[row] or "",
        )
        found.append(one)
    # sorting is stable: file order within each half
    return tuple(sorted(found, key=lambda one: not one.matters))


def audit_headline(audit: ExtractionAudit) -> list[str]:
    """What there is to say in a few lines, the most important first."""
    many = f"{format_count(audit.n, 'output')} of {format_count(audit.n_cases, 'case')}"
    lines = [f"{many}, {format_count(len(audit.names), 'extractor')}"]
    n = len(audit.disagreements)
    if not n:
        return [*lines, "all extractors agree on every output"]
    lines.append(f"they disagree on {n:,} outputs ({n / audit.n:.1%})")
    if audit.metric is not None:
        span = f": the mean spans {audit.span:.3f}" if audit.span is not None else ""
        lines.append(f"on {audit.n_verdicts:,} of them the verdict depends on the extractor{span}")
    return lines
