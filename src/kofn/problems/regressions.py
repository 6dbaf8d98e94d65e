"""Imports groups of earlier checkpoints that must still pass into later ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kofn.errors import InputError, UnknownName
from kofn.problems.case_files import format_place
from kofn.problems.config import EVERY
from kofn.scoring.policy import GroupType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.problems.case_files import CheckpointSource
    from kofn.problems.config import CheckpointSpec, RegressionSpec
    from kofn.problems.problem import CaseGroup, Checkpoint

    Read = tuple[Checkpoint, CheckpointSpec, CheckpointSource]


def with_regressions(read: Sequence[Read]) -> Iterator[Checkpoint]:
    """The checkpoints, each with what it imports after its own groups.

    A checkpoint gives its own groups, not those it imported itself, so that `*` brings each of them once.
    """
    for number, (checkpoint, checkpoint_spec, source) in enumerate(read):
        groups = {group.name: group for group in checkpoint.groups}  # `read` has the checkpoints without imports
        counts = []
        for i, spec in enumerate(checkpoint_spec.regressions):
            at = (*source.at[:-1], "regressions", i)
            place = f"{format_place(source.file, at, source.folder)}: {checkpoint.name}: regressions[{i}]"
            before = len(groups)
            for group in _imported(spec, [c for c, _, _ in read[:number]], [c for c, _, _ in read], place):
                if group.name in groups:
                    raise InputError(f"{place}: group {group.name!r} is there already: change name_template")
                groups[group.name] = group
            counts.append(len(groups) - before)
        yield replace(checkpoint, groups=tuple(groups.values()), imports=tuple(counts))


def _imported(
    spec: RegressionSpec, earlier: list[Checkpoint], everyone: list[Checkpoint], place: str
) -> Iterator[CaseGroup]:
    checkpoints = (
        earlier if EVERY in spec.checkpoints else [_earlier(n, earlier, everyone, place) for n in spec.checkpoints]
    )
    known = [group.name for checkpoint in checkpoints for group in checkpoint.groups]
    for name in spec.groups:
        if name not in known:
            raise InputError(f"{place}: {UnknownName('group', name, known)}")
    left_out = _left_out(spec, checkpoints, place)
    for checkpoint in checkpoints:
        for group in checkpoint.groups:
            if (spec.groups and group.name not in spec.groups) or group.name in left_out:
                continue
            if spec.type_filter and group.type.value not in spec.type_filter:
                continue
            yield _as_regression(checkpoint, group, spec, left_out)


def _earlier(name: str, earlier: list[Checkpoint], everyone: list[Checkpoint], place: str) -> Checkpoint:
    found = next((c for c in earlier if c.name == name), None)
    if found is not None:
        return found
    if any(c.name == name for c in everyone):
        raise InputError(f"{place}: {name!r} is not earlier: a regression is of a checkpoint with a lower order")
    raise InputError(
        f"{place}: {UnknownName('checkpoint', name, [c.name for c in earlier], 'there is no earlier one')}"
    )


def _left_out(spec: RegressionSpec, checkpoints: list[Checkpoint], place: str) -> set[str]:
    """The names in `exclude`: groups, and cases as GROUP/CASE."""
    groups = [group for checkpoint in checkpoints for group in checkpoint.groups]
    known = {group.name for group in groups} | {f"{group.name}/{case.id}" for group in groups for case in group.cases}
    for name in spec.exclude:
        if name not in known:
            raise InputError(
                f"{place}: exclude: {UnknownName('group or case', name, sorted(known), 'expected GROUP or GROUP/CASE')}"
            )
    return set(spec.exclude)


def _as_regression(checkpoint: Checkpoint, group: CaseGroup, spec: RegressionSpec, left_out: set[str]) -> CaseGroup:
    return replace(
        group,
        name=spec.name_template.format(checkpoint=checkpoint.name, group=group.name),
        type=GroupType.REGRESSION,
        cases=tuple(case for case in group.cases if f"{group.name}/{case.id}" not in left_out),
        original_checkpoint=checkpoint.name,
        original_group=group.name,
    )
