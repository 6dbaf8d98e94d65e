"""Importer of Inspect logs (UK AI Security Institute): `.eval`, a zip of samples, and `.json`, one document."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.base import Importer, reject_malformed
from kofn.importers.log_table import LogFacts, LogRow, iter_members, parse_json
from kofn.importers.recognition import INSPECT_HEADERS, INSPECT_SAMPLE, is_inspect_log
from kofn.importers.scalars import content_reasoning, content_text, dialogue, object_in
from kofn.importers.sources import Archive, DamagedEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from zipfile import ZipInfo

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

# value_to_float of inspect_ai.scorer, with its default words
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_REFERENCES = ("attachment://", "tc://")  # the second in logs before 0.3.45
_OWN = ("note", "candidate_weight", "facets", "weight", "cluster", "required", "ideal")
_PLAIN = {"pass": "passed", "score": "score"}  # in logs that kofn exported, these scorers were plain fields
_LARGE = 1 << 63  # no column holds a larger whole number; the comparison also leaves out NaN
_TEXTS = re.compile(r"(?P<prefix>samples/.+/)attachments/(?P<start>\d+)\.json", re.DOTALL)
_LOWER = {"perplexity": False, "target_perplexity": False}
_EXAMPLES = 3
_MOST_EPOCHS = 100_000  # more in a header is a damaged one, and would be listed as missing samples

# --- one sample as a row of values by role


class InvalidSample(ValueError):
    """A sample that lacks what every sample has; the message says what."""


@dataclass(kw_only=True)
class SampleStats:
    """Statistics of the samples of a log.

    answers     the scorer whose answers are used: the first that gave one
    labels      the names of the grades, in order of appearance
    grades      (scorer, "lists" or "texts") -> how often its value was not a grade; `example` has one of the texts
    epochs      (sample id, epoch) of every sample
    """

    n: int = 0
    failed: int = 0
    first_error: str = ""
    graded_failures: int = 0
    limits: Counter[str] = field(default_factory=Counter)
    invalid: int = 0
    helpers: set[str] = field(default_factory=set)
    answers: str | None = None
    labels: dict[str, None] = field(default_factory=dict)
    grades: Counter[tuple[str, str]] = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)
    epochs: set[tuple[str, int]] = field(default_factory=set)

    def notes(self) -> Iterator[CodedWarning]:
        """One warning for each kind of problem."""
        if self.failed:
            error = self.first_error[:80]
            yield CodedWarning.of("failed-in-log", about="inspect", n=self.failed, of=self.n, error=error)
        if self.graded_failures:
            yield CodedWarning.of("log-grades-otherwise", about="score-on-error", n=self.graded_failures)
        for kind, count in sorted(self.limits.items()):
            yield CodedWarning.of("log-grades-otherwise", about="limit", n=count, kind=kind)
        if self.invalid:
            yield CodedWarning.of("log-grades-otherwise", about="invalid", n=self.invalid)
        for (scorer, kind), count in self.grades.items():
            such = f" such as {self.example[scorer]!r:.40}" if kind == "texts" else ""
            gave = {"scorer": scorer, "kind": kind, "such": such}
            yield CodedWarning.of("failed-in-log", about="inspect-grade", n=count, **gave)
        if self.helpers:
            models = tuple(sorted(self.helpers)[:_EXAMPLES])
            yield CodedWarning.of("log-grades-otherwise", about="models", models=models)


def row_of(sample: Any, stats: SampleStats, options: ReadOptions, header: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a sample by role; `stats` is updated.

    Grades are those of Inspect's own value_to_float: C, I, P, N are 1, 0, 0.5, 0. NaN means "not graded" there.
    """
    if not isinstance(sample, dict):
        raise InvalidSample(f"expected an object, found {type(sample).__name__}")
    for name in ("id", "epoch"):
        if sample.get(name) is None:
            raise InvalidSample(f"no {name!r}")
    try:
        epoch = scalars.as_whole(sample["epoch"])
    except scalars.InvalidValue as problem:
        raise InvalidSample(f"epoch: {problem}") from None
    assert epoch is not None
    # texts that are stored once and referred to: by place in a chunked sample, by hash, or the old way
    texts = sample.get("attachments")
    attached: dict[str, str] = object_in(object_in(sample, "transcript"), "content")
    if isinstance(texts, list | dict):
        attached = texts if isinstance(texts, dict) else {str(place): text for place, text in enumerate(texts)}
    stats.n += 1
    stats.epochs.add((str(scalars.as_text(sample["id"])), epoch))
    error = _error(sample, stats)
    choices, targets = sample.get("choices"), scalars.as_references(_resolve(sample.get("target"), attached))
    seconds = sample.get("working_time") or sample.get("total_time") or object_in(sample, "output").get("time")
    kept = object_in(object_in(sample, "store"), "kofn")  # what kofn's own exporter stores beside Inspect's fields
    return {
        "id": sample["id"],
        "repeat": epoch,
        **_output(sample, attached, failed=error is not None),
        "reference": [one for one in targets or () if one.strip()] or None,
        "choices": _resolve(choices, attached) if isinstance(choices, list) and choices else None,
        "input": (dialogue(_resolve(sample.get("input"), attached)) or None) if options.everything else None,
        "error": error,
        "note": _note(sample, stats),
        "seconds": _number(seconds),
        **_usage(sample, header, stats),
        **_grades(sample, stats, header, failed=error is not None),
        **{
            f"tag.{name}": value
            for name, value in _resolve(object_in(sample, "metadata"), attached).items()
            if isinstance(value, str) or (isinstance(value, (bool, int, float)) and abs(value) < _LARGE)
        },
        **{name: value for name, value in kept.items() if name in _OWN or name.startswith("selector.")},
    }


def grade(value: Any) -> float | None:
    """A score's value as a number, as Inspect converts it; None where it is NaN, null or not a grade.

    >>> [grade(v) for v in ("C", "P", True, "0.25", float("nan"), "a nice try")]
    [1.0, 0.5, 1.0, 0.25, None, None]
    """
    # Inspect compares C, I, P and N as they are, and words in lower case: "c" is a choice, not a grade
    word = value if not isinstance(value, str) or len(value) < 2 else value.lower()
    return _GRADES[word] if isinstance(word, str) and word in _GRADES else _number(value)


def _number(value: Any) -> float | None:
    try:
        return scalars.as_number(value)
    except scalars.InvalidValue:
        return None


def _resolve(value: Any, attached: Mapping[str, str]) -> Any:
    """A value with its references to attachments replaced by their texts."""
    if isinstance(value, str):
        start = next((start for start in _REFERENCES if value.startswith(start)), None)
        return value if start is None else attached.get(value.removeprefix(start), value)
    if isinstance(value, list):
        return [_resolve(one, attached) for one in value]
    if isinstance(value, dict):
        return {name: _resolve(one, attached) for name, one in value.items()}
    return value


def _output(sample: Mapping[str, Any], attached: Mapping[str, str], *, failed: bool) -> dict[str, Any]:
    """The text of a sample's output and the reasoning beside it; a sample without an output has neither."""
    output = object_in(sample, "output")
    choices = output.get("choices")
    message = object_in(choices[0], "message") if isinstance(choices, list) and choices else {}
    content = _resolve(message.get("content"), attached)
    text = _resolve(output.get("completion"), attached) or content_text(content)
    if not text and (failed or not message):
        text = None
    return {"text": text, "reasoning": content_reasoning(content) or scalars.as_text(message.get("reasoning"))}


def _error(sample: Mapping[str, Any], stats: SampleStats) -> str | None:
    error = sample.get("error")
    if not error:
        return None
    message = str(object_in(sample, "error").get("message") or scalars.as_text(error))
    if not stats.failed:
        stats.first_error = message.partition("\n")[0]
    stats.failed += 1
    return message


def _note(sample: Mapping[str, Any], stats: SampleStats) -> str | None:
    stats.invalid += sample.get("invalidation") is not None
    limit = sample.get("limit")
    if not limit:
        return None
    kind = str(object_in(sample, "limit").get("type") or scalars.as_text(limit))
    stats.limits[kind] += 1
    return f"stopped by a {kind} limit"


def _usage(sample: Mapping[str, Any], header: Mapping[str, Any], stats: SampleStats) -> dict[str, Any]:
    """Tokens and cost of the model that is evaluated: a log also counts those of graders."""
    usage = {name: one for name, one in object_in(sample, "model_usage").items() if isinstance(one, dict)}
    model = str(object_in(header, "eval").get("model", ""))
    only = next(iter(usage.values())) if len(usage) == 1 else object_in(object_in(sample, "output"), "usage")
    found = usage.get(model) or only
    if len(usage) > 1:
        stats.helpers |= set(usage) - {model}
    names = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    read = [_number(found.get(name)) for name in names]
    return {
        "tokens": _number(found.get("output_tokens")),
        "tokens_in": sum(n for n in read if n is not None) if read[0] is not None else None,
        "cost": _number(found.get("total_cost")),
    }


def _grades(
    sample: Mapping[str, Any], stats: SampleStats, header: Mapping[str, Any], *, failed: bool
) -> dict[str, Any]:
    """`label.SCORER` (or `label.SCORER.KEY`) of every score, and the answer of the scorer that gives answers.

    A sample that failed is not graded, unless its log was made to grade failures.
    """
    scores = object_in(sample, "scores") or ({"score": sample["score"]} if sample.get("score") else {})
    if failed:
        if not scores or not object_in(object_in(header, "eval"), "config").get("score_on_error"):
            return {}
        stats.failed -= 1  # `_error` has counted it as not graded
        stats.graded_failures += 1
    out: dict[str, Any] = {}
    own = _PLAIN if "kofn" in object_in(object_in(header, "eval"), "packages") else {}
    for scorer, score in scores.items():
        whole = score if isinstance(score, dict) else {"value": score}
        value = whole.get("value")
        grades = {f"{scorer}.{k}": one for k, one in value.items()} if isinstance(value, dict) else {scorer: value}
        for name, one in grades.items():
            if isinstance(one, list):
                stats.grades[name, "lists"] += 1
            elif (found := grade(one)) is not None:
                stats.labels[name] = None
                out[own.get(name, f"label.{name}")] = found
            elif isinstance(one, str) and one:
                stats.grades[name, "texts"] += 1
                stats.example.setdefault(name, one)
        if whole.get("answer") is not None and stats.answers in (None, scorer):
            stats.answers = scorer
            out["answer"] = whole["answer"]
    return out


# --- the log


def read(peek: Peek, options: ReadOptions) -> Table:
    """Samples by id, their epochs as repeats, with notes on what the log says is missing or unfinished."""
    log = _InspectLog(peek, options, SampleStats())
    if peek.head.startswith(b"PK\x03\x04"):
        with Archive(peek.path, peek.source) as archive:
            return log.table(log.of_archive(archive))
    return log.table(log.of_document())


class _InspectLog:
    """A log while it is read: its header, its samples as they come, and notes at the end."""

    def __init__(self, peek: Peek, options: ReadOptions, stats: SampleStats) -> None:
        self.peek, self.options, self.stats = peek, options, stats
        self.header: dict[str, Any] = {}
        self.fields = {"id": "id", "repeat": "epoch", "text": "output.completion", "reference": "target"}
        self.origin: dict[str, Any] = {"tool": "inspect"}
        self.labels = dict(_LOWER)
        self.notes: list[CodedWarning] = []
        self.lost: list[str] = []

    def table(self, rows: Iterator[LogRow]) -> Table:
        # labels, notes and origin are complete once the last row was yielded: `table` reads them after the rows
        return LogFacts(
            source=self.peek.source,
            form="Inspect samples",
            labels=self.labels,
            notes=self.notes,
            origin=self.origin,
            fields=self.fields,
        ).table(self._finished(rows), self.options)

    def of_archive(self, archive: Archive) -> Iterator[LogRow]:
        """The samples of a `.eval` file in the order of its data set, one in memory at a time."""
        self.header = self._zip_header(archive)
        spec = self.header.get("eval", {})
        place = {str(one): at for at, one in enumerate(object_in(spec, "dataset").get("sample_ids") or ())}
        samples = [(match, entry) for entry in archive.entries if (match := INSPECT_SAMPLE.fullmatch(entry.filename))]
        samples.sort(key=lambda one: (place.get(one[0]["id"], len(place)), int(one[0]["epoch"])))
        # the texts of each sample that is stored in chunks, in order, by the sample's folder
        chunks = [(match, entry) for entry in archive.entries if (match := _TEXTS.fullmatch(entry.filename))]
        texts: dict[str, list[ZipInfo]] = {}
        for match, entry in sorted(chunks, key=lambda one: int(one[0]["start"])):
            texts.setdefault(match["prefix"], []).append(entry)
        for match, entry in samples:
            try:
                sample = _parse_entry(archive.read(entry))
                if match["chunked"] and isinstance(sample, dict):  # its metadata and the texts it refers to are beside
                    prefix = entry.filename.removesuffix("sample.json")
                    if (metadata := archive.entry(f"{prefix}metadata.json")) is not None:
                        sample["metadata"] = _parse_entry(archive.read(metadata))
                    parts = (_parse_entry(archive.read(part)) for part in texts.get(prefix, ()))
                    sample["attachments"] = [text for part in parts for text in part]
            except DamagedEntry as problem:
                self.lost.append(f"{entry.filename} ({problem})")
                continue
            yield from self._row(entry.filename, sample)

    def of_document(self) -> Iterator[LogRow]:
        """The samples of a `.json` file in the order of the file."""
        number = 0
        for (name, *_), value in iter_members(self.peek.path, self.peek.source, [("samples",)]):
            if name != "samples":
                self.header[name] = value
            elif value is not None:  # none in a log of the header alone
                number += 1
                yield from self._row(f"sample {number}", value)

    def _zip_header(self, archive: Archive) -> dict[str, Any]:
        for name in INSPECT_HEADERS:
            try:
                entry = archive.entry(name)
                found = None if entry is None else _parse_entry(archive.read(entry))
            except DamagedEntry as problem:
                self.notes.append(CodedWarning.of("log-incomplete", about="header", file=name, problem=str(problem)))
                continue
            if isinstance(found, dict):
                return found if name == INSPECT_HEADERS[0] else {**found, "status": "started"}
        return {}

    def _row(self, place: str, sample: Any) -> Iterator[LogRow]:
        try:
            yield LogRow(place, row_of(sample, self.stats, self.options, self.header))
        except InvalidSample as problem:
            self.lost.append(f"{place} ({problem})")

    def _finished(self, rows: Iterator[LogRow]) -> Iterator[LogRow]:
        yield from rows
        if not self.stats.n:
            raise InputError(f"{self.peek.source}: {self._nothing()}")
        with reject_malformed(f"{self.peek.source}: header", "Inspect"):
            spec = self.header.get("eval", {})
            packages = spec.get("packages") or {}
            known = {
                "task": spec.get("task"),
                "model": spec.get("model"),
                "version": packages.get("inspect_ai"),
                "created": spec.get("created"),
                "attempt_of": spec.get("task_id"),
            }
            self.origin |= {name: value for name, value in known.items() if value}
            if self.stats.answers is not None:
                self.fields["answer"] = f"scores.{self.stats.answers}.answer"
            self.labels |= dict.fromkeys((spec.get("metadata") or {}).get("lower_is_better") or (), False)
            self.fields |= {f"label.{name}": f"scores.{name}" for name in self.stats.labels}
            self.notes += self._about_log()

    def _nothing(self) -> str:
        if self.lost:
            return f"none of its {len(self.lost):,} samples can be read: {self.lost[0]}"
        spec = self.header.get("eval")
        config = (spec.get("config") if isinstance(spec, dict) else None) or {}
        if isinstance(config, dict) and config.get("log_samples") is False:
            return "no samples in this Inspect log: it was made without them (log_samples is off)"
        return f"no samples in this Inspect log (status {self.header.get('status', 'unknown')})"

    def _about_log(self) -> Iterator[CodedWarning]:
        status = self.header.get("status")
        if status == "started":
            yield CodedWarning.of("log-incomplete", about="started", n=self.stats.n)
        elif status in ("cancelled", "error"):
            why = str((self.header.get("error") or {}).get("message") or "").partition("\n")[0]
            why = f" ({why:.80})" if why else ""
            yield CodedWarning.of("log-incomplete", about="ended", status=status, why=why)
        if self.lost:
            are, lost = "is" if len(self.lost) == 1 else "are", tuple(self.lost[:_EXAMPLES])
            yield CodedWarning.of("left-out-of-log", about="unreadable", n=len(self.lost), are=are, samples=lost)
        if not self.stats.labels and not self.stats.failed:
            yield CodedWarning.of("log-incomplete", about="unscored")
        yield from self._missing(self.header.get("eval", {}))
        yield from self.stats.notes()

    def _missing(self, spec: Mapping[str, Any]) -> Iterator[CodedWarning]:
        """Samples that the run was to make, according to the header, and that the log lacks."""
        config = spec.get("config") or {}
        epochs = config.get("epochs") or 1
        if not isinstance(epochs, int) or not 0 < epochs <= _MOST_EPOCHS:
            expected = f"expected a whole number up to {_MOST_EPOCHS:,}"
            raise InputError(f"{self.peek.source}: header: {epochs!r:.40} epochs: {expected}")
        ids = object_in(spec, "dataset").get("sample_ids")
        if ids:
            planned = [(str(one), epoch) for one in ids for epoch in range(1, epochs + 1)]
            missing = [f"{one} epoch {epoch}" for one, epoch in planned if (one, epoch) not in self.stats.epochs]
            size, n_missing = len(planned), len(missing)
        else:
            results, samples = self.header.get("results") or {}, object_in(spec, "dataset").get("samples")
            size = results.get("total_samples") or _limited_size(samples, config) * epochs
            missing, n_missing = [], max(0, size - len(self.stats.epochs))
        if n_missing:
            which = f" ({', '.join(missing[:_EXAMPLES])})" if missing else ""
            yield CodedWarning.of("log-incomplete", about="missing", n=n_missing, of=size, which=which)


def _limited_size(samples: Any, config: Mapping[str, Any]) -> int:
    """Samples of a data set under the limit of a run: a count, or from and to."""
    size, limit = int(samples or 0), config.get("limit")
    if isinstance(limit, list) and len(limit) == 2:
        return max(0, min(size, int(limit[1])) - int(limit[0]))
    return min(size, limit) if isinstance(limit, int) else size


def _parse_entry(data: bytes) -> Any:
    try:
        return parse_json(data)
    except ValueError as problem:
        raise DamagedEntry(f"not JSON: {problem!s:.80}") from None


IMPORTER = Importer(name="inspect", what="Inspect logs (.eval and .json)", recognises=is_inspect_log, read=read)
