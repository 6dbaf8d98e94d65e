"""Importer of NeMo-Skills outputs: `output-rs*.jsonl`, one file per random seed, and the greedy `output.jsonl`."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers.base import Importer
from kofn.importers.log_table import LogFacts, LogRow, count_notes, objects
from kofn.importers.recognition import Peek, is_nemo_skills, nemo_seeds
from kofn.importers.scalars import plain_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions

_GREEDY = "output.jsonl"
_NOT_RUN = ("", "<not_executed>")
_SHORT = 60  # characters of a problem that may serve as its id
# label -> its field, in the newest version first
_LABELS = {
    "symbolic_correct": ("symbolic_correct", "is_correct"),
    "judge_correct": ("judge_correct",),
    "plus": ("is_correct-plus",),
}
_KNOWN = {
    *("generation", "id", "problem", "question", "expected_answer", "predicted_answer", "reference_solution"),
    *("symbolic_correct", "is_correct", "is_correct-plus", "judge_correct", "judgement", "error_message", "error"),
    *("detailed_error", "num_generated_tokens", "num_input_tokens", "generation_time", "generation_start_time"),
    *("generation_end_time", "reward_model_score", "reasoning_content", "finish_reason", "_async_position"),
}


def read(peek: Peek, options: ReadOptions) -> Table:
    """One file is one repeat of every problem; a folder is all its seeds, without the greedy file beside them.

    Cases are matched by `id`, or by the text of the problem where there is none. The labels are symbolic_correct and
    judge_correct, which is also read from the text of a judgement. A generation that failed (`error`) is not graded.
    """
    notes = _OutputNotes()
    return LogFacts(
        source=peek.source,
        form="NeMo-Skills outputs",
        labels=dict.fromkeys(_LABELS, True),
        notes=notes,
        origin={"tool": "nemo-skills"},
        fields={
            "id": "id",
            "text": "generation",
            "answer": "predicted_answer",
            "reference": "expected_answer",
            "input": "problem",
            "tokens": "num_generated_tokens",
            "seconds": "generation_time",
            "note": "error_message",
        },
    ).table(_all_rows(peek, notes), options)


class _OutputNotes:
    """Notes that are complete once all lines are read."""

    def __init__(self) -> None:
        self.lines: list[CodedWarning] = []
        self.count: Counter[str] = Counter()

    def __iter__(self) -> Iterator[CodedWarning]:
        yield from self.lines
        kinds = {"judgement": ("failed-in-log", "judgement"), "error": ("failed-in-log", "generation")}
        yield from count_notes(self.count, kinds)
        if n := self.count["again"]:
            yield CodedWarning.of("repeated-problems", n=n)


def _all_rows(peek: Peek, notes: _OutputNotes) -> Iterator[LogRow]:
    if not peek.path.is_dir():
        yield from _rows(peek, 0, "", notes)
        return
    seeds = nemo_seeds(peek.path)
    greedy = peek.path / _GREEDY
    if greedy.exists():
        same = next((seed.name for seed in seeds if seed.read_bytes() == greedy.read_bytes()), None)
        copy = f", a copy of {same}" if same else ""
        notes.lines.append(CodedWarning.of("left-out-of-log", about="greedy", file=_GREEDY, copy=copy))
    for repeat, path in enumerate(seeds):
        yield from _rows(Peek(path, f"{peek.source.rstrip('/')}/{path.name}"), repeat, f"{path.name}: ", notes)


def _rows(peek: Peek, repeat: int, lead: str, notes: _OutputNotes) -> Iterator[LogRow]:
    seen: Counter[str] = Counter()
    for place, record in objects(peek, "generation"):
        case = _id(record, f"{peek.source}: {place}")
        if record.get("id") is None:
            # the tool itself matches seeds by line, so the same problem a second time is another case
            seen[case] += 1
            notes.count["again"] += seen[case] > 1
            case = case if seen[case] == 1 else f"{case} #{seen[case]}"
        yield LogRow(f"{lead}{place}", {"id": case, "repeat": repeat, **_values(record, notes)})


def _id(record: Mapping[str, Any], where: str) -> str:
    """The id, or the problem's text: whole where it is short, else its beginning and a digest of it.

    >>> _id({"problem": "What is 2 + 2?"}, ""), _id({"id": 7}, "")
    ('What is 2 + 2?', '7')
    """
    if record.get("id") is not None:
        return str(record["id"])
    text = record.get("problem", record.get("question"))
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: no id and no problem: nothing says which case this is; found {', '.join(record)}")
    words = " ".join(text.split())
    if len(words) <= _SHORT:
        return words
    return f"{words[: _SHORT - 12]}... {hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _values(record: Mapping[str, Any], notes: _OutputNotes) -> dict[str, Any]:
    error = record.get("error") or (None if record["generation"] is not None else "no generation")
    notes.count["error"] += error is not None
    note = record.get("error_message")
    values = {
        "text": record["generation"],
        "error": error,
        "answer": record.get("predicted_answer"),
        "reference": record.get("expected_answer"),
        "input": record.get("problem", record.get("question")),
        "reasoning": record.get("reasoning_content"),
        "tokens": record.get("num_generated_tokens"),
        "tokens_in": record.get("num_input_tokens"),
        "seconds": record.get("generation_time"),
        "note": None if note in _NOT_RUN else note,  # an error of the answer's code does not stop its grading
        "selector.reward_model_score": record.get("reward_model_score"),
    }
    if error is None:
        for label, names in _LABELS.items():
            values[f"label.{label}"] = next((record[name] for name in names if record.get(name) is not None), None)
        if values["label.judge_correct"] is None and isinstance(text := record.get("judgement"), str):
            values["label.judge_correct"] = parse_judgement(text)
            notes.count["judgement"] += values["label.judge_correct"] is None
    return {**values, **plain_tags(record, _KNOWN)}


def parse_judgement(text: str) -> bool | None:
    """The verdict after the last "Judgement:"; None where that is neither yes nor no.

    >>> [parse_judgement(t) for t in ("Reasoning: equal. Judgement: Yes", "Judgement: no.", "I agree")]
    [True, False, None]
    """
    _, found, verdict = text.rpartition("Judgement:")
    word = verdict.strip().lower()
    if not found or not word.startswith(("yes", "no")):
        return None
    return word.startswith("yes")


IMPORTER = Importer(
    name="nemo_skills",
    what="NeMo-Skills output-rs*.jsonl: files, or their folder",
    recognises=is_nemo_skills,
    read=read,
)
