"""One sample of an Inspect log as a row of values by role, and statistics of what could not become one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.core.format import format_count
from kofn.importers import scalars
from kofn.importers.chat import content_reasoning, content_text, dialogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.importers.reader_options import ReadOptions

# value_to_float of inspect_ai.scorer, with its default words
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_REFERENCES = ("attachment://", "tc://")  # the second in logs before 0.3.45
_OWN = ("note", "candidate_weight", "facets", "weight", "cluster", "required", "ideal")
_PLAIN = {"pass": "passed", "score": "score"}  # in logs that kofn exported, these scorers were plain fields
_LARGE = 1 << 63  # no column holds a larger whole number; the comparison also leaves out NaN
_EXAMPLES = 3


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

    def notes(self) -> Iterator[str]:
        """One line for each kind of problem."""
        if self.failed:
            yield f"{self.failed:,} of {format_count(self.n, 'sample')} failed ({self.first_error:.80}): not graded"
        if self.graded_failures:
            failures = format_count(self.graded_failures, "sample")
            yield f"{failures} failed and graded: the log was made with score_on_error"
        for kind, count in sorted(self.limits.items()):
            yield f"{format_count(count, 'sample')} stopped by a {kind} limit: graded as far as it went"
        if self.invalid:
            yield f"{format_count(self.invalid, 'sample')} marked invalid in the log: counted here as it is there"
        for (scorer, kind), count in self.grades.items():
            such = f" such as {self.example[scorer]!r:.40}" if kind == "texts" else ""
            yield f"scorer {scorer} gave {kind}{such} for {format_count(count, 'sample')}: no grade, left out"
        if self.helpers:
            names = ", ".join(sorted(self.helpers)[:_EXAMPLES])
            yield f"tokens and cost are those of the model evaluated, not of {names}"


def row_of(sample: Any, stats: SampleStats, options: ReadOptions, header: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a sample by role; `stats` is updated.

    Grades are those of Inspect's own value_to_float: C, I, P, N are 1, 0, 0.5, 0. NaN means "not graded" there.
    """
    if not isinstance(sample, dict):
        raise InvalidSample(f"expected an object, found {type(sample).__name__}")
    for name in ("id", "epoch"):
        if sample.get(name) is None:
            raise InvalidSample(f"no {name!r}")
    epoch = _epoch(sample["epoch"])
    attached = _attachments(sample)
    stats.n += 1
    stats.epochs.add((str(scalars.as_text(sample["id"])), epoch))
    error = _error(sample, stats)
    choices = sample.get("choices")
    return {
        "id": sample["id"],
        "repeat": epoch,
        **_output(sample, attached, failed=error is not None),
        "reference": _reference(sample.get("target"), attached),
        "choices": _resolve(choices, attached) if isinstance(choices, list) and choices else None,
        "input": (dialogue(_resolve(sample.get("input"), attached)) or None) if options.everything else None,
        "error": error,
        "note": _note(sample, stats),
        "seconds": _number(
            sample.get("working_time") or sample.get("total_time") or _object(sample, "output").get("time")
        ),
        **_usage(sample, header, stats),
        **_grades(sample, stats, header, failed=error is not None),
        **_tags(_resolve(_object(sample, "metadata"), attached)),
        **_kofn_fields(sample),
    }


def grade(value: Any) -> float | None:
    """A score's value as a number, as Inspect converts it; None where it is NaN, null or not a grade.

    >>> [grade(v) for v in ("C", "P", True, "0.25", float("nan"), "a nice try")]
    [1.0, 0.5, 1.0, 0.25, None, None]
    """
    if isinstance(value, str):
        # Inspect compares C, I, P and N as they are, and words in lower case: "c" is a choice, not a grade
        number = _GRADES.get(value, _GRADES.get(value.lower()) if len(value) > 1 else None)
        return number if number is not None else _number(value)
    return _number(value)


def _number(value: Any) -> float | None:
    try:
        number = scalars.as_number(value)
    except scalars.InvalidValue:
        return None
    return number


def _epoch(value: Any) -> int:
    try:
        epoch = scalars.as_whole(value)
    except scalars.InvalidValue as problem:
        raise InvalidSample(f"epoch: {problem}") from None
    assert epoch is not None
    return epoch


def _object(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _attachments(sample: Mapping[str, Any]) -> dict[str, str]:
    """Texts that are stored once and referred to: by hash, by place in a chunked sample, or the old way."""
    found = sample.get("attachments")
    if isinstance(found, list):
        return {str(place): text for place, text in enumerate(found)}
    return found if isinstance(found, dict) else _object(_object(sample, "transcript"), "content")


def _resolve(value: Any, attached: Mapping[str, str]) -> Any:
    """A value with its references to attachments replaced by their texts."""
    if isinstance(value, str):
        for start in _REFERENCES:
            if value.startswith(start):
                return attached.get(value.removeprefix(start), value)
        return value
    if isinstance(value, list):
        return [_resolve(one, attached) for one in value]
    if isinstance(value, dict):
        return {name: _resolve(one, attached) for name, one in value.items()}
    return value


def _output(sample: Mapping[str, Any], attached: Mapping[str, str], *, failed: bool) -> dict[str, Any]:
    """The text of a sample's output and the reasoning beside it; a sample without an output has neither."""
    output = _object(sample, "output")
    choices = output.get("choices")
    message = _object(choices[0], "message") if isinstance(choices, list) and choices else {}
    content = _resolve(message.get("content"), attached)
    text = _resolve(output.get("completion"), attached) or content_text(content)
    if not text and (failed or not message):
        text = None
    return {"text": text, "reasoning": content_reasoning(content) or scalars.as_text(message.get("reasoning"))}


def _reference(target: Any, attached: Mapping[str, str]) -> list[str] | None:
    found = scalars.as_references(_resolve(target, attached))
    return [one for one in found or () if one.strip()] or None


def _error(sample: Mapping[str, Any], stats: SampleStats) -> str | None:
    error = sample.get("error")
    if not error:
        return None
    message = str(_object(sample, "error").get("message") or scalars.as_text(error))
    if not stats.failed:
        stats.first_error = message.partition("\n")[0]
    stats.failed += 1
    return message


def _note(sample: Mapping[str, Any], stats: SampleStats) -> str | None:
    stats.invalid += sample.get("invalidation") is not None
    limit = sample.get("limit")
    if not limit:
        return None
    kind = str(_object(sample, "limit").get("type") or scalars.as_text(limit))
    stats.limits[kind] += 1
    return f"stopped by a {kind} limit"


def _usage(sample: Mapping[str, Any], header: Mapping[str, Any], stats: SampleStats) -> dict[str, Any]:
    """Tokens and cost of the model that is evaluated: a log also counts those of graders."""
    usage = {name: one for name, one in _object(sample, "model_usage").items() if isinstance(one, dict)}
    model = str(_object(header, "eval").get("model", ""))
    found = usage.get(model) or (
        next(iter(usage.values())) if len(usage) == 1 else _object(_object(sample, "output"), "usage")
    )
    if len(usage) > 1:
        stats.helpers |= set(usage) - {model}
    read = [
        _number(found.get(name)) for name in ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    ]
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
    scores = _object(sample, "scores") or ({"score": sample["score"]} if sample.get("score") else {})
    if failed:
        if not scores or not _object(_object(header, "eval"), "config").get("score_on_error"):
            return {}
        stats.failed -= 1  # `_error` has counted it as not graded
        stats.graded_failures += 1
    out: dict[str, Any] = {}
    own = _PLAIN if "kofn" in _object(_object(header, "eval"), "packages") else {}
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        for name, one in _values(scorer, value):
            if (found := _count_grade(name, one, stats)) is not None:
                stats.labels[name] = None
                out[own.get(name, f"label.{name}")] = found
        answer = score.get("answer") if isinstance(score, dict) else None
        if answer is not None and stats.answers in (None, scorer):
            stats.answers = scorer
            out["answer"] = answer
    return out


def _values(scorer: str, value: Any) -> Sequence[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{scorer}.{key}", one) for key, one in value.items()]
    return [(scorer, value)]


def _count_grade(name: str, value: Any, stats: SampleStats) -> float | None:
    found = None if isinstance(value, list) else grade(value)
    if isinstance(value, list):
        stats.grades[name, "lists"] += 1
    elif found is None and isinstance(value, str) and value:
        stats.grades[name, "texts"] += 1
        stats.example.setdefault(name, value)
    return found


def _kofn_fields(sample: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that kofn's own exporter stores beside those of Inspect."""
    kept = _object(_object(sample, "store"), "kofn")
    return {name: value for name, value in kept.items() if name in _OWN or name.startswith("selector.")}


def _tags(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"tag.{name}": value
        for name, value in metadata.items()
        if isinstance(value, str) or (isinstance(value, (bool, int, float)) and abs(value) < _LARGE)
    }
