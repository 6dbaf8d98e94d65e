"""A task: what is asked, on which data, and how the answers are graded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.tasks import datasets, grading
from kofn.tasks.fewshot import Shots
from kofn.tasks.items import chosen, items_of
from kofn.tasks.recipe import TaskRecipe
from kofn.tasks.shapes import SHAPES
from kofn.tasks.spec import PartSpec, StageSpec, TaskSpec, TwoStageSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kofn.evaluate import Options
    from kofn.generate.stages import Item
    from kofn.metrics import MetricConfig
    from kofn.report.convert import Plan

_OF_STAGES = tuple(name for name in StageSpec.model_fields if name not in ("name", "model"))


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task file, and where it came from: paths in it are relative to its folder. `notes`: what was left out of it."""

    spec: TaskSpec
    folder: Path | None = None
    source: str = "task"
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What runs of it are called."""
        return self.spec.name

    @property
    def group_field(self) -> str:
        """The field that says which group a case belongs to."""
        return self.spec.groups.field if self.spec.groups else "group"

    def items(
        self,
        data: Path | None = None,
        *,
        limit: int | None = None,
        samples: Sequence[str] = (),
        sample: int | None = None,
        seed: int = 0,
    ) -> list[Item]:
        """The items in the order of the file, all of them or some.

        `limit` takes the first ones (the task's own limit where not given), `samples` those of these ids, `sample` so
        many drawn with the seed, every group in proportion. Nothing is shuffled.
        """
        for name, count in (("limit", limit), ("sample", sample)):
            if count is not None and count < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, not {count}")
        found = items_of(self.spec, map(self.prepared, self._records(data)))
        if not found:
            raise InputError(f"task {self.name}: its data holds no records")
        self._check_names(found)
        if data is None:
            self._check_groups(found)
        first = limit if limit is not None or samples else self.spec.limit
        return chosen(found, samples=samples, limit=first, sample=sample, group=self.group_field, seed=seed)

    def prepared(self, placed: datasets.Placed) -> datasets.Placed:
        """A record as its fields are looked for in it; here as it is."""
        return placed

    def recipe(self, data: Path | None = None, *, seed: int = 0) -> TaskRecipe:
        """How the task asks. `data` is where the items came from: few-shot examples may lie beside it."""
        return TaskRecipe(spec=self.spec, shots=self._shots(data), seed=seed)

    def two_staged(
        self,
        *,
        markovian: bool | None = None,
        actor_reward_weight: float | None = None,
        temperature: float | None = None,
        reasoning: Mapping[str, Any] | None = None,
        answer: Mapping[str, Any] | None = None,
    ) -> Task:
        """The same task asked in two stages: the actor reasons, then the answer follows from the reasoning.

        What is not said stays as the task has it where it has two stages already, else as `TwoStageSpec` has it.
        Examples of a task that asked once are left out: they show answers, and now a reasoning is asked for first.
        """
        own = (self.spec.two_stage or TwoStageSpec()).model_dump(mode="json", exclude_unset=True)
        named = {"markovian": markovian, "actor_reward_weight": actor_reward_weight, "temperature": temperature}
        parts = {"reasoning": reasoning, "answer": answer}
        body = own | {name: value for name, value in named.items() if value is not None}
        body |= {name: {**own.get(name, {}), **part} for name, part in parts.items() if part}
        examples = {} if self.spec.two_stage else {"fewshot": None}
        return self._changed({"two_stage": body, "stages": None, **examples})

    def override(self, *, stages: Mapping[str, Mapping[str, Any]] | None = None, **changes: Any) -> Task:
        """The task with some of its settings changed: those of the file, and those of its stages.

        A setting of stages (`max_tokens`, `stop`, `chat`...) goes to the one stage there is; of several, say which:
        `stages={"reasoning": {"max_tokens": 64}}`. `temperature` goes to every stage but those fixed at 0 beside
        others. None leaves a setting alone.
        """
        given = {name: value for name, value in changes.items() if value is not None}
        for name in given:
            if name not in (*_OF_STAGES, *TaskSpec.model_fields):
                raise UnknownName("setting", name, [*_OF_STAGES, *TaskSpec.model_fields])
        of_task = {name: value for name, value in given.items() if name not in _OF_STAGES}
        task = self._changed(self._asked_anew(of_task)) if of_task else self
        of_stages = {name: value for name, value in given.items() if name in _OF_STAGES}
        return task._with_stages(stages or {}, of_stages) if of_stages or stages else task

    def evaluate_options(self, **overrides: Any) -> Options:
        """How `kofn.evaluate` grades the answers."""
        return grading.evaluate_options(self.spec, **overrides)

    def report_plan(self, **overrides: Any) -> Plan:
        """How the result becomes a report."""
        return grading.report_plan(self.spec, **overrides)

    def metric_configs(self) -> list[MetricConfig]:
        """The metrics, for those who score one case at a time."""
        return grading.metric_configs(self.spec)

    def fingerprint(self) -> str:
        """What is asked and how it is graded, as 16 hexadecimal digits; the description does not matter."""
        return _digest(self.spec.model_dump(mode="json", exclude={"description", "limit", "repeats", "use"}))[:16]

    def dataset_digest(self, items: Sequence[Item]) -> str:
        """What these items hold, as a SHA-256, whatever file they came from."""
        return _digest([[i.case.id, i.case.references, i.case.choices, i.case.weight, dict(i.fields)] for i in items])

    def located(self, data: Path | None = None) -> Path | None:
        """The file or folder of the data; None where the records are in the task file or on Hugging Face."""
        return datasets.locate(self.spec.dataset, self.name, self.folder, data)

    def _records(self, data: Path | None) -> Iterator[datasets.Placed]:
        place = self.located(data)
        if place is not None:
            return datasets.records_at(place, subjects=self._subjects)
        own = self.spec.dataset.records
        if own is not None:
            return (datasets.Placed(f"{self.source}: dataset.{at}", r) for at, r in enumerate(own))
        return datasets.hub_records(self.spec.dataset)

    @property
    def _subjects(self) -> bool:
        return self.spec.shape is not None and SHAPES[self.spec.shape].subjects

    def _shots(self, data: Path | None) -> Shots:
        few = self.spec.fewshot
        if few is None or not few.count:
            return Shots()
        records = (
            (datasets.Placed(f"{self.source}: fewshot.source.{at}", r) for at, r in enumerate(few.source))
            if isinstance(few.source, list)
            else self._dev(few.source, data)
        )
        pool = tuple(items_of(self.spec, map(self.prepared, records)))
        if len(pool) < few.count:
            raise InputError(f"task {self.name}: fewshot: {few.count} examples asked for, {len(pool)} there")
        per_repeat = self.spec.output_type == "multiple_choice" if few.per_repeat is None else few.per_repeat
        return Shots(pool=pool, count=few.count, seed=few.seed, per_repeat=per_repeat, group=self.group_field)

    def _dev(self, source: str, data: Path | None) -> Iterator[datasets.Placed]:
        if source != "dev":
            path = (self.folder / source) if self.folder else _path(source)
            if not path.exists():
                raise InputError(f"task {self.name}: fewshot.source: {path}: no such file")
            return datasets.records_at(path, subjects=self._subjects)
        place = self.located(data)
        if place is not None:
            return datasets.dev_records(place, subjects=self._subjects)
        if self.spec.dataset.hf is None:
            raise InputError(
                f"task {self.name}: fewshot.source: no dev examples beside records of the task file itself"
            )
        return datasets.hub_records(self.spec.dataset, "dev" if self._subjects else "train")

    def _check_names(self, items: Sequence[Item]) -> None:
        """Refuse a prompt that names what some item has not."""
        recipe = TaskRecipe(spec=self.spec)
        for at, stage in enumerate(recipe.stages):
            wanted = set(recipe.names(at))
            for item in items:
                if missing := sorted(wanted - item.fields.keys()):
                    there = ", ".join(sorted(item.fields))
                    raise InputError(
                        f"{self.source}: stage {stage.name}: {{{missing[0]}}} is no field of item {item.case.id!r}: "
                        f"there is {there}"
                    )

    def _check_groups(self, items: Sequence[Item]) -> None:
        """Refuse a type or a weight of a group that no item belongs to."""
        groups = self.spec.groups
        if groups is None:
            return
        there = list(dict.fromkeys(item.case.tags.get(groups.field, "") for item in items))
        for name in (*groups.types, *groups.weights):
            if name not in there:
                raise InputError(f"{self.source}: groups: {UnknownName('group', name, there)}")

    def _asked_anew(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Prompts that ask for a letter do not suit options compared by likelihood: those get the usual prompt."""
        switched = changes.get("output_type", self.spec.output_type) != self.spec.output_type
        if not switched or "stages" in changes or self.spec.two_stage or len(self.spec.stages) != 1:
            return dict(changes)
        stage = self.spec.stages[0].model_dump(exclude_unset=True, exclude={"prompt"})
        return {**changes, "stages": [stage]}

    def _with_stages(self, named: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> Task:
        """Settings of stages, those named for one and those that are common, where it is clear whose they are."""
        stages = self.spec.all_stages()
        names = [stage.name for stage in stages]
        for name in named:
            if name not in names:
                raise UnknownName("stage", name, names)
        if self.spec.two_stage and common.keys() <= {"temperature"} and _fits(named, PartSpec):
            # still two stages, and says so
            parts = {name: named.get(name) for name in names}
            return self.two_staged(
                temperature=common.get("temperature"), reasoning=parts["reasoning"], answer=parts["answer"]
            )
        many = len(stages) > 1
        if unclear := [name for name in common if many and name != "temperature"]:
            raise InputError(
                f"task {self.name} has the stages {' and '.join(names)}: say whose {unclear[0]} it is, such as "
                f"{names[0]}.{unclear[0]}"
            )
        body = []
        for stage in stages:
            fixed = many and stage.temperature == 0
            own = {k: v for k, v in common.items() if not (k == "temperature" and fixed)}
            body.append({**stage.model_dump(exclude_unset=True), **own, **named.get(stage.name, {})})
        return self._changed({"stages": body, "two_stage": None})

    def _changed(self, changes: Mapping[str, Any]) -> Task:
        from kofn.tasks.load import checked, spec_of

        body = {**self.spec.model_dump(mode="json", exclude_unset=True), **changes}
        kept = {name: value for name, value in body.items() if value is not None}
        return checked(replace(self, spec=spec_of(kept, self.source)))


def _fits(named: Mapping[str, Mapping[str, Any]], part: type[PartSpec]) -> bool:
    return all(setting in part.model_fields for settings in named.values() for setting in settings)


def _path(text: str) -> Path:
    from pathlib import Path

    return Path(text)


def _digest(value: Any) -> str:
    from hashlib import sha256

    import orjson

    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
