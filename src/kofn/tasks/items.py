"""Builds the items of a task from its records: a case, and the fields that its prompts may name."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from kofn.core.types import Case
from kofn.errors import InputError, UnknownName
from kofn.tasks.shapes import SHAPES, generic, label_options, plain_fields, with_fields
from kofn.tasks.stages import Item

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kofn.tasks.datasets import PlacedRecord
    from kofn.tasks.shapes import Example, Option
    from kofn.tasks.spec import TaskSpec


def items_of(spec: TaskSpec, placed: Iterable[PlacedRecord]) -> list[Item]:
    """Every record as an item. A record that cannot be read is refused with its place; so is an id that is twice."""
    rows = list(placed)
    examples = [_example(spec, row) for row in rows]
    if has_option_labels(spec):
        for at, found in enumerate(label_options(examples)):
            if isinstance(found, InputError):
                raise InputError(f"{rows[at].where}: {found}")
            examples[at] = found
    ids = _ids(spec, examples)
    _refuse_twice(ids, rows)
    return [_item(*one) for one in zip(ids, rows, examples, strict=True)]


def has_option_labels(spec: TaskSpec) -> bool:
    """Whether the options of a task are labelled, and its references are labels.

    Not so where an extractor of another kind looks for the options' texts.
    """
    return spec.output_type == "multiple_choice" or spec.extract is None or spec.extract.startswith(("letter", "llm"))


def list_options(options: Sequence[Option]) -> str:
    """Options as a prompt lists them, one per line.

    >>> from kofn.tasks.shapes import Option
    >>> print(list_options([Option("A", "red"), Option("B", "blue")]))
    A) red
    B) blue
    """
    return "\n".join(str(option) for option in options)


def _example(spec: TaskSpec, row: PlacedRecord) -> Example:
    try:
        if spec.shape is None:
            return generic(row.record, spec.fields)
        return with_fields(SHAPES[spec.shape].example(row.record), row.record, spec.fields)
    except InputError as problem:
        raise InputError(f"{row.where}: {problem}") from None
    except (TypeError, ValueError, KeyError, AttributeError) as problem:
        raise InputError(f"{row.where}: not a record of shape {spec.shape or 'generic'}: {problem}") from None


def _ids(spec: TaskSpec, examples: Sequence[Example]) -> list[str]:
    """The record's own id, else the task's name, or the subject, and the place from 0."""
    subjects = spec.shape is not None and SHAPES[spec.shape].subjects
    # by place in the file, so that a record has the same id whatever --limit or --sample leave out
    counts: dict[str, int] = defaultdict(int)
    ids = []
    for example in examples:
        start = example.tags["subject"] if subjects else spec.name
        ids.append(example.id if example.id is not None else f"{start}/{counts[start]}")
        counts[start] += 1
    return ids


def _refuse_twice(ids: Sequence[str], rows: Sequence[PlacedRecord]) -> None:
    first: dict[str, str] = {}
    for one, row in zip(ids, rows, strict=True):
        if one in first:
            raise InputError(f"{row.where}: id {one!r} is there already ({first[one]}): ids must differ")
        first[one] = row.where


def _item(case_id: str, row: PlacedRecord, example: Example) -> Item:
    tags = dict(example.tags)
    if example.group is not None:
        tags.setdefault("group", example.group)
    case = Case(
        id=case_id,
        input=example.question,
        references=example.references,
        choices=tuple(str(o) for o in example.options) or example.choices,
        tags=tags,
        weight=example.weight,
        cluster=example.cluster,
    )
    fields = {**plain_fields(row.record), **tags, **_roles(example, case_id)}
    return Item(case=case, fields=fields)


def _roles(example: Example, case_id: str) -> dict[str, str]:
    options = list_options(example.options)
    return {
        "id": case_id,
        "question": example.question,
        "input": example.question,
        "reference": example.references[0] if example.references else "",
        "options": options or "\n".join(example.choices),
        "question_and_options": f"{example.question}\n{options}" if options else example.question,
    }


def select_items(
    items: Sequence[Item], *, samples: Sequence[str] = (), limit: int | None = None, sample: int | None = None,
    group: str = "group", seed: int = 0,
) -> list[Item]:  # fmt: skip
    """Some of the items, in their order: those with these ids, then the first `limit`, then a stratified sample."""
    kept = list(items)
    if samples:
        known = {item.case.id for item in items}
        for one in samples:
            if one not in known:
                raise UnknownName("id", one, sorted(known), hint=f"ids look like {items[0].case.id!r}")
        kept = [item for item in kept if item.case.id in set(samples)]
    kept = kept[:limit]
    return kept if sample is None else sample_stratified(kept, sample, group, seed)


def sample_stratified(items: Sequence[Item], n: int, group: str, seed: int) -> list[Item]:
    """`n` items drawn with a seed, every group in proportion to its size; the order of the file is kept.

    Where proportions are not whole numbers the largest remainders are rounded up.
    """
    import random

    if n >= len(items):
        return list(items)
    places: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        places[item.fields.get(group, "")].append(at)
    # the largest remainder method, as seats are given to parties
    shares = {name: n * len(own) / len(items) for name, own in places.items()}
    counts = {name: int(share) for name, share in shares.items()}
    left = n - sum(counts.values())
    for name in sorted(shares, key=lambda g: counts[g] - shares[g])[:left]:
        counts[name] += 1
    draw = random.Random(seed)  # noqa: S311 - seeded, not secret
    kept = {at for name, own in places.items() for at in draw.sample(own, counts[name])}
    return [item for at, item in enumerate(items) if at in kept]
