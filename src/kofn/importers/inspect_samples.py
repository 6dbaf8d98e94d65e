"""One sample of an Inspect log as a row, and a tally of what could not become one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kofn.importers import scalars
from kofn.importers.chat import content_reasoning, content_text, dialogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.importers.rows import ReadOptions

_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_REFERENCES = ("attachment://", "tc://")  # the second in logs before 0.3.45
_OWN = ("note", "candidate_weight", "facets", "weight", "cluster", "required", "ideal")
_PLAIN = {"pass": "passed", "score": "score"}  # metrics of files that were not another tool's
_LARGE = 1 << 63  # no column holds more; nor a NaN
_SHOWN = 3


class NoSample(ValueError):
    """A sample that lacks what every sample has, and what."""


@dataclass(kw_only=True)
class Tally:
    """What was seen in the samples of a log.

    answers     the scorer whose answers are taken: the first that gave one
    labels      the names of the grades, in order of appearance
    grades      (scorer, "lists" or "texts") -> how often it gave what is no grade, and one of those texts
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
    seen: set[tuple[str, int]] = field(default_factory=set)

    def told(self) -> Iterator[str]:
        """A line for everything somebody should know."""
        from kofn.diagnose import counted

        if self.failed:
            yield f"{self.failed:,} of {counted(self.n, 'sample')} failed ({self.first_error:.80}): not graded"
        if self.graded_failures:
            yield f"{counted(self.graded_failures, 'sample')} failed and graded: the log was made with score_on_error"
        for kind, count in sorted(self.limits.items()):
            yield f"{counted(count, 'sample')} stopped by a {kind} limit: graded as far as it went"
        if self.invalid:
            yield f"{counted(self.invalid, 'sample')} marked invalid in the log: counted here as it is there"
        for (scorer, kind), count in self.grades.items():
            such = f" such as {self.example[scorer]!r:.40}" if kind == "texts" else ""
            yield f"scorer {scorer} gave {kind}{such} for {counted(count, 'sample')}: no grade, left out"
        if self.helpers:
            names = ", ".join(sorted(self.helpers)[:_SHOWN])
            yield f"tokens and cost are those of the model evaluated, not of {names}"


def row_of(sample: Any, tally: Tally, options: ReadOptions, header: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a sample by role; `tally` learns what was in it.

    Grades are those of Inspect's own value_to_float: C, I, P, N are 1, 0, 0.5, 0. NaN is its word for not graded.
    """
    if not isinstance(sample, dict):
        raise NoSample(f"expected an object, found {type(sample).__name__}")
    for name in ("id", "epoch"):
        if sample.get(name) is None:
            raise NoSample(f"no {name!r}")
    epoch = _epoch(sample["epoch"])
    attached = _attachments(sample)
    tally.n += 1
    tally.seen.add((str(scalars.as_text(sample["id"])), epoch))
    error = _error(sample, tally)
    choices = sample.get("choices")
    return {
        "id": sample["id"],
        "repeat": epoch,
        **_output(sample, attached, failed=error is not None),
        "reference": _reference(sample.get("target"), attached),
        "choices": _resolved(choices, attached) if isinstance(choices, list) and choices else None,
        "input": (dialogue(_resolved(sample.get("input"), attached)) or None) if options.everything else None,
        "error": error,
        "note": _note(sample, tally),
        "seconds": _number(sample.get("working_time") or sample.get("total_time") or _of(sample, "output").get("time")),
        **_usage(sample, header, tally),
        **_grades(sample, tally, header, failed=error is not None),
        **_tags(_resolved(_of(sample, "metadata"), attached)),
        **_own(sample),
    }


def grade(value: Any) -> float | None:
    """A score's value as a number, as Inspect converts it; None where it is NaN, null or no grade at all.

    >>> [grade(v) for v in ("C", "P", True, "0.25", float("nan"), "a nice try")]
    [1.0, 0.5, 1.0, 0.25, None, None]
    """
    if isinstance(value, str):
        known = _GRADES.get(value, _GRADES.get(value.lower()) if len(value) > 1 else None)
        return known if known is not None else _number(value)
    return _number(value)


def _number(value: Any) -> float | None:
    try:
        number = scalars.as_number(value)
    except scalars.Unreadable:
        return None
    return number


def _epoch(value: Any) -> int:
    try:
        epoch = scalars.as_whole(value)
    except scalars.Unreadable as problem:
        raise NoSample(f"epoch: {problem}") from None
    assert epoch is not None
    return epoch


def _of(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = record.get(name)
    return found if isinstance(found, dict) else {}


def _attachments(sample: Mapping[str, Any]) -> dict[str, str]:
    """Texts that are stored once and referred to: by hash, by place in a chunked sample, or the old way."""
    found = sample.get("attachments")
    if isinstance(found, list):
        return {str(place): text for place, text in enumerate(found)}
    return found if isinstance(found, dict) else _of(_of(sample, "transcript"), "content")


def _resolved(value: Any, attached: Mapping[str, str]) -> Any:
    """A value with the texts it refers to."""
    if isinstance(value, str):
        for start in _REFERENCES:
            if value.startswith(start):
                return attached.get(value.removeprefix(start), value)
        return value
    if isinstance(value, list):
        return [_resolved(one, attached) for one in value]
    if isinstance(value, dict):
        return {name: _resolved(one, attached) for name, one in value.items()}
    return value


def _output(sample: Mapping[str, Any], attached: Mapping[str, str], *, failed: bool) -> dict[str, Any]:
    """The text of a sample's output and the reasoning beside it; a sample without an output has neither."""
    output = _of(sample, "output")
    choices = output.get("choices")
    message = _of(choices[0], "message") if isinstance(choices, list) and choices else {}
    content = _resolved(message.get("content"), attached)
    text = _resolved(output.get("completion"), attached) or content_text(content)
    if not text and (failed or not message):
        text = None
    return {"text": text, "reasoning": content_reasoning(content) or scalars.as_text(message.get("reasoning"))}


def _reference(target: Any, attached: Mapping[str, str]) -> list[str] | None:
    found = scalars.as_references(_resolved(target, attached))
    return [one for one in found or () if one.strip()] or None


def _error(sample: Mapping[str, Any], tally: Tally) -> str | None:
    error = sample.get("error")
    if not error:
        return None
    message = str(_of(sample, "error").get("message") or scalars.as_text(error))
    if not tally.failed:
        tally.first_error = message.partition("\n")[0]
    tally.failed += 1
    return message


def _note(sample: Mapping[str, Any], tally: Tally) -> str | None:
    tally.invalid += sample.get("invalidation") is not None
    limit = sample.get("limit")
    if not limit:
        return None
    kind = str(_of(sample, "limit").get("type") or scalars.as_text(limit))
    tally.limits[kind] += 1
    return f"stopped by a {kind} limit"


def _usage(sample: Mapping[str, Any], header: Mapping[str, Any], tally: Tally) -> dict[str, Any]:
    """Tokens and cost of the model that is evaluated: a log also counts those of graders."""
    usage = {name: one for name, one in _of(sample, "model_usage").items() if isinstance(one, dict)}
    model = str(_of(header, "eval").get("model", ""))
    found = usage.get(model) or (next(iter(usage.values())) if len(usage) == 1 else _of(_of(sample, "output"), "usage"))
    if len(usage) > 1:
        tally.helpers |= set(usage) - {model}
    read = [
        _number(found.get(name)) for name in ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    ]
    return {
        "tokens": _number(found.get("output_tokens")),
        "tokens_in": sum(n for n in read if n is not None) if read[0] is not None else None,
        "cost": _number(found.get("total_cost")),
    }


def _grades(sample: Mapping[str, Any], tally: Tally, header: Mapping[str, Any], *, failed: bool) -> dict[str, Any]:
    """`label.SCORER` (or `label.SCORER.KEY`) of every score, and the answer of the scorer that gives answers.

    A sample that failed is not graded, unless its log was made to grade failures.
    """
    scores = _of(sample, "scores") or ({"score": sample["score"]} if sample.get("score") else {})
    if failed:
        if not scores or not _of(_of(header, "eval"), "config").get("score_on_error"):
            return {}
        tally.failed -= 1
        tally.graded_failures += 1
    out: dict[str, Any] = {}
    own = _PLAIN if "kofn" in _of(_of(header, "eval"), "packages") else {}
    for scorer, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        for name, one in _values(scorer, value):
            if (found := _graded(name, one, tally)) is not None:
                tally.labels[name] = None
                out[own.get(name, f"label.{name}")] = found
        answer = score.get("answer") if isinstance(score, dict) else None
        if answer is not None and tally.answers in (None, scorer):
            tally.answers = scorer
            out["answer"] = answer
    return out


def _values(scorer: str, value: Any) -> Sequence[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"{scorer}.{key}", one) for key, one in value.items()]
    return [(scorer, value)]


def _graded(name: str, value: Any, tally: Tally) -> float | None:
    found = None if isinstance(value, list) else grade(value)
    if isinstance(value, list):
        tally.grades[name, "lists"] += 1
    elif found is None and isinstance(value, str) and value:
        tally.grades[name, "texts"] += 1
        tally.example.setdefault(name, value)
    return found


def _own(sample: Mapping[str, Any]) -> dict[str, Any]:
    """What kofn's own export keeps beside what Inspect knows."""
    kept = _of(_of(sample, "store"), "kofn")
    return {name: value for name, value in kept.items() if name in _OWN or name.startswith("selector.")}


def _tags(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {
        f"tag.{name}": value
        for name, value in metadata.items()
        if isinstance(value, str) or (isinstance(value, (bool, int, float)) and abs(value) < _LARGE)
    }
