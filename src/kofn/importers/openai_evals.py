"""Importer of OpenAI evals logs (`oaieval`): lines with the run's spec, its events and the final report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.base import Importer, reject_malformed
from kofn.importers.log_table import LogFacts, LogRow, count_notes, objects, require_fields
from kofn.importers.recognition import is_openai_evals
from kofn.importers.scalars import object_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

    _Candidate = tuple[Any, Any, Mapping[str, Any]]  # text, prompt, usage


def read(peek: Peek, options: ReadOptions) -> Table:
    """Samples by their id: everything sampled for one are its candidates, its matches their labels."""
    log = _EventLog(peek, options)
    log.load()
    return LogFacts(
        source=peek.source,
        form="OpenAI evals events",
        notes=log.notes(),
        origin=log.origin(),
        fields={"id": "sample_id", "text": "sampled", "reference": "expected", "answer": "picked"},
    ).table(log.rows(), options)


@dataclass(slots=True, kw_only=True)
class _SampleEvents:
    """The events of one sample_id. A candidate is its text, its prompt, and its usage where that is of it alone."""

    place: str
    candidates: list[_Candidate] = field(default_factory=list)
    matches: list[Mapping[str, Any]] = field(default_factory=list)
    metrics: list[Mapping[str, Any]] = field(default_factory=list)
    raw: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class _EventLog:
    def __init__(self, peek: Peek, options: ReadOptions) -> None:
        self.peek, self.options = peek, options
        self.spec: dict[str, Any] = {}
        self.report: Any = None
        self.samples: dict[str, _SampleEvents] = {}
        self.counts: Counter[str] = Counter()
        self.other: Counter[str] = Counter()

    def load(self) -> None:
        """Gather the events of every sample: those of several are interleaved, since samples run concurrently."""
        for place, record in objects(self.peek):
            if "spec" in record:
                self.spec = object_in(record, "spec")
            elif "final_report" in record:
                self.report = record["final_report"]
            else:
                self._event(place, record)
        if not self.samples:
            raise InputError(f"{self.peek.source}: no events of samples in this OpenAI evals log: the run made none")

    def _event(self, place: str, record: Mapping[str, Any]) -> None:
        require_fields(record, ("sample_id", "type", "data"), f"{self.peek.source}: {place}", "in every event")
        data = object_in(record, "data")
        sample = self.samples.setdefault(str(record["sample_id"]), _SampleEvents(place=place))
        kind = record["type"]
        if kind == "sampling":
            sampled = data.get("sampled")
            texts = sampled if isinstance(sampled, list) else [sampled]
            usage = object_in(data, "usage") if len(texts) == 1 else {}
            sample.candidates += [(text, data.get("prompt"), usage) for text in texts]
        elif kind == "match":
            sample.matches.append(data)
        elif kind == "metrics":
            sample.metrics.append(data)
        elif kind == "raw_sample":
            sample.raw = data
        elif kind == "error":
            sample.error = str(data.get("message") or data.get("type") or "error")
        else:
            self.other[str(kind)] += 1

    def rows(self) -> Iterator[LogRow]:
        """One row per candidate; a sample that only failed is one row with its error."""
        for name, sample in self.samples.items():
            with reject_malformed(f"{self.peek.source}: {sample.place}", "OpenAI evals"):
                yield from self._of_sample(name, sample)

    def _of_sample(self, name: str, sample: _SampleEvents) -> Iterator[LogRow]:
        graded = sample.candidates
        # where a model grades, the last sampling event is its verdict and not a candidate
        cls = object_in(object_in(self.spec, "run_config"), "eval_spec").get("cls")
        if "modelgraded" in str(cls) and len(graded) > 1:
            self.counts["grader"] += 1
            graded = graded[:-1]
        expected = next((match["expected"] for match in sample.matches if match.get("expected") is not None), None)
        shared = {"id": name, "reference": expected if expected is not None else sample.raw.get("ideal")}
        if self.options.everything:
            prompt = sample.candidates[0][1] if sample.candidates else sample.raw.get("input")
            shared["input"] = scalars.dialogue(prompt)
        if not graded:
            self.counts["failed"] += 1
            yield LogRow(sample.place, {**shared, "error": sample.error or "nothing was sampled"})
        for (text, _, usage), label in zip(graded, self._labels(sample, graded), strict=True):
            tokens = {"tokens": usage.get("completion_tokens"), "tokens_in": usage.get("prompt_tokens")}
            yield LogRow(sample.place, {**shared, "text": text, **tokens, **label})

    def _labels(self, sample: _SampleEvents, candidates: list[_Candidate]) -> list[dict[str, Any]]:
        """Labels of every candidate: its own match, by order or by the text that was sampled; its own metrics."""
        out: list[dict[str, Any]] = [{} for _ in candidates]
        if len(sample.matches) == len(candidates):
            pairs = list(zip(out, sample.matches, strict=True))
        else:
            texts = [text for text, _, _ in candidates]
            known = [one for one in sample.matches if one.get("sampled") in texts]
            pairs = [(out[texts.index(one["sampled"])], one) for one in known]
            self.counts["unmatched"] += len(sample.matches) - len(known)
        for label, match in pairs:
            picked = match.get("picked")
            # a list has spellings of the same answer
            answer = next(iter(picked), None) if isinstance(picked, list) else picked
            label |= {"label.match": match.get("correct"), "answer": scalars.as_text(answer)}
        if len(sample.metrics) == len(candidates):
            for label, metrics in zip(out, sample.metrics, strict=True):
                numbers = {k: v for k, v in metrics.items() if isinstance(v, (bool, int, float)) and v == v}
                label |= {f"label.{name}": value for name, value in numbers.items()}
                label |= {"note": metrics["choice"]} if isinstance(metrics.get("choice"), str) else {}
        elif sample.metrics:
            self.counts["metrics"] += 1
        return out

    def notes(self) -> Iterator[CodedWarning]:
        """One warning for each kind of problem; complete after the rows."""
        kinds = {
            "failed": ("failed-in-log", "sample"),
            "grader": ("left-out-of-log", "model-graded"),
            "unmatched": ("left-out-of-log", "verdict"),
            "metrics": ("left-out-of-log", "whole-sample"),
        }
        yield from count_notes(self.counts, kinds)
        if self.report is None:
            yield CodedWarning.of("log-incomplete", about="report")
        if self.other:
            others = tuple(f"{count:,} {kind}" for kind, count in sorted(self.other.items()))
            yield CodedWarning.of("left-out-of-log", about="events", kinds=others)

    def origin(self) -> dict[str, Any]:
        functions = self.spec.get("completion_fns") or self.spec.get("model_name")
        models = functions if isinstance(functions, list) else [functions]
        known = {"task": self.spec.get("eval_name"), "model": " and ".join(str(m) for m in models if m)}
        return {"tool": "openai-evals", **{name: value for name, value in known.items() if value}}


IMPORTER = Importer(name="openai_evals", what="logs of OpenAI evals", recognises=is_openai_evals, read=read)
