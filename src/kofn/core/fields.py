"""Recognises the fields of an input file by the names that people give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# role -> names in order of preference. `answer` stands late among the references: in many files it is what a model
# answered, so anything more specific is taken first.
CASE_ROLES: dict[str, tuple[str, ...]] = {
    "id": ("id", "case_id", "group_id", "task_id", "question_id", "doc_id", "sample_id", "example_id"),
    "reference": (
        *("reference", "references", "gold", "target", "expected", "ground_truth", "correct_answer", "answer_key"),
        *("answerkey", "answer", "answers", "solution"),
    ),
    "choices": ("choices", "options"),
    "input": ("input", "question", "prompt", "problem", "instruction"),
    "cluster": ("cluster",),
    "weight": ("weight",),
    "required": ("required", "required_ids"),
    "ideal": ("ideal",),
}

CANDIDATE_ROLES: dict[str, tuple[str, ...]] = {
    "repeat": ("repeat", "repeat_index", "epoch", "trial", "candidate_index"),
    "text": ("text", "output", "completion", "response", "generation", "generated_text", "content"),
    "answer": ("extracted_answer", "extracted", "predicted", "pred", "answer"),
    "passed": ("pass", "passed", "correct", "is_correct"),
    "score": ("score", "value", "rating"),
    "cost": ("cost", "cost_usd"),
    "seconds": ("seconds", "latency", "latency_s", "duration"),
    "tokens": ("tokens", "completion_tokens", "output_tokens"),
    "reasoning": ("reasoning", "cot", "reasoning_content"),
    "error": ("error",),
    "note": ("note",),
    "facets": ("facets",),
    "candidate_weight": ("candidate_weight",),
}

SELECTORS = (
    "reward",
    "reward_score",
    "rm_score",
    "judge_score",
    "selector",
    "selector_score",
    "logprob",
    "log_prob",
    "logprobs_sum",
)

PREFIXES = ("label.", "selector.")  # a field called label.NAME is a grade, one called selector.NAME a selector's score

WIDE = ("outputs", "candidates", "responses", "samples", "completions", "generations", "predictions")

GROUP_LISTS = {"scores": "score", "passes": "passed", "texts": "text", "answers": "answer"}

NUMERIC = frozenset({"score", "cost", "seconds", "tokens", "weight", "candidate_weight"})

ROLES = (*CASE_ROLES, *CANDIDATE_ROLES, "outputs")


def recognise(
    columns: Iterable[str], roles: Mapping[str, tuple[str, ...]], given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Role -> column, upper or lower case. `given` (from --field role=name) wins over the known names.

    No column has two roles.

    >>> recognise(["question_id", "completion", "gold"], CASE_ROLES | CANDIDATE_ROLES)
    {'id': 'question_id', 'reference': 'gold', 'text': 'completion'}
    """
    present = list(columns)
    found = {role: name for role, name in (given or {}).items() if role in roles and name in present}
    taken = set((given or {}).values())
    # reversed, so that of names that differ in case only the first column of the file wins
    by_name = {name.strip().lower(): name for name in reversed(present) if name not in taken}
    for role, names in roles.items():
        name = next((by_name[n] for n in names if n in by_name and by_name[n] not in taken), None)
        if role not in found and name is not None:
            found[role] = name
            taken.add(name)
    return found


def labels_in(columns: Iterable[str]) -> dict[str, bool]:
    """The grades that a file's own columns name, all better when higher.

    >>> labels_in(["id", "label.match"])
    {'match': True}
    """
    return {c.removeprefix("label."): True for c in columns if c.startswith("label.")}


def wide_names(given: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The names a list of all outputs of a case may have."""
    return (given["outputs"],) if given and "outputs" in given else WIDE


def long_fields(columns: Iterable[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Roles of a row that is one candidate.

    `answer` is the reference when nothing else is, and the extracted answer otherwise.

    >>> long_fields(["id", "output", "answer"])["reference"]
    'answer'
    >>> long_fields(["id", "output", "gold", "answer"])["answer"]
    'answer'
    """
    return recognise(columns, CASE_ROLES | CANDIDATE_ROLES, given)


def parse_field_options(pairs: Iterable[str]) -> dict[str, str]:
    """Read --field role=name.

    >>> parse_field_options(["text=reply"])
    {'text': 'reply'}
    """
    out: dict[str, str] = {}
    for pair in pairs:
        role, sign, name = pair.partition("=")
        if not sign or not name or role not in ROLES:
            raise InputError(f"--field {pair!r}: expected role=name, with a role of {', '.join(ROLES)}")
        if role in out:
            raise InputError(f"--field {role} is given twice: {out[role]} and {name}")
        out[role] = name
    return out
