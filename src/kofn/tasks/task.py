"""The class `Task`: a task file with its items, its prompts, its grading, and copies with changed settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.metrics import MetricConfig
from kofn.metrics.metric_config import REPEAT_AGGREGATORS
from kofn.registry import aggregator, extractor, metric
from kofn.scoring.configuration import Config, PassPolicy
from kofn.tasks.items import PlacedRecord, dev_records, hub_records, items_of, locate, records_at, select_items
from kofn.tasks.recipe import Shots, TaskRecipe
from kofn.tasks.shapes import SHAPES
from kofn.tasks.spec import PartSpec, StageSpec, TaskSpec, TwoStageSpec, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kofn.core.warnings import CodedWarning
    from kofn.tasks.stages import Item

# names of other tools' task files for what is an aggregator here
REPEATS = {"any": "any_pass", "all": "all_pass", "best": "best_score", "maj": "majority", "vote": "majority"}
# settings that belong to a stage and not to the task: `override` sends them there
_OF_STAGES = tuple(name for name in StageSpec.model_fields if name not in ("name", "model"))

# --- grading: metrics and aggregators as options for scoring and for the report


def repeat_aggregators(spec: TaskSpec) -> tuple[str, ...]:
    """The aggregators that the metrics of a task name for their repeats, each once."""
    named = (m.repeat_aggregation for m in spec.metrics if m.repeat_aggregation)
    return tuple(dict.fromkeys(REPEATS.get(name, name) for name in named))


def case_rule_of(spec: TaskSpec) -> str | None:
    """The aggregator by which a case passes without a verdict: the first that a metric names for its repeats."""
    return next(iter(repeat_aggregators(spec)), None)


def policy_of(spec: TaskSpec) -> PassPolicy | None:
    """When the whole run passes, where the task file says so."""
    return PassPolicy(spec.policy) if "policy" in spec.model_fields_set else None


def _aggregated(name: str, scores: Any, *, predictions: Any = None) -> float:
    """An aggregator of whole runs on the scores of one case."""
    from kofn.scoring.groupwise import aggregate  # brings polars, as above

    found = aggregate(name, values=list(scores), answers=None if predictions is None else list(predictions))
    return float("nan") if found is None else found


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task file, and where it came from: paths in it are relative to its folder. `notes`: what was left out of it."""

    spec: TaskSpec
    folder: Path | None = None
    source: str = "task"
    notes: tuple[CodedWarning, ...] = ()

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
        ids: Sequence[str] = (),
        sample: int | None = None,
        seed: int = 0,
    ) -> list[Item]:
        """The items in the order of the file, all of them or some.

        `limit` takes the first ones (the task's own limit where not given), `ids` these, `sample` so
        many drawn with the seed, every group in proportion. Nothing is shuffled.
        """
        for name, count in (("limit", limit), ("sample", sample)):
            if count is not None and count < 1:
                raise InputError(f"{name}: expected a whole number of at least 1, not {count}")
        found = items_of(self.spec, map(self.prepare_record, self._records(data)))
        if not found:
            raise InputError(f"task {self.name}: its data holds no records")
        self._check_names(found)
        if data is None:  # another file than the task's own need not hold all of its groups
            self._check_groups(found)
        first = limit if limit is not None or ids else self.spec.limit
        return select_items(found, ids=ids, limit=first, sample=sample, group=self.group_field, seed=seed)

    def prepare_record(self, placed: PlacedRecord) -> PlacedRecord:
        """A record as its fields are looked for in it; here as it is."""
        return placed

    def recipe(self, data: Path | None = None, *, seed: int = 0) -> TaskRecipe:
        """How the task asks. `data` is where the items came from: few-shot examples may lie beside it."""
        few, shots = self.spec.fewshot, Shots()
        if few is not None and few.count:
            pool = tuple(items_of(self.spec, map(self.prepare_record, self._dev(few.source, data))))
            if len(pool) < few.count:
                raise InputError(f"task {self.name}: fewshot: {few.count} examples asked for, {len(pool)} there")
            each = self.spec.output_type == "multiple_choice" if few.per_repeat is None else few.per_repeat
            shots = Shots(pool=pool, count=few.count, seed=few.seed, per_repeat=each, group=self.group_field)
        return TaskRecipe(spec=self.spec, shots=shots, seed=seed)

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
        return self._with_changes({"two_stage": body, "stages": None, **examples})

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
        of_stages = {name: value for name, value in given.items() if name in _OF_STAGES}
        # prompts that ask for a letter do not suit options compared by likelihood: those get the usual prompt
        switched = of_task.get("output_type", self.spec.output_type) != self.spec.output_type
        if switched and "stages" not in of_task and not self.spec.two_stage and len(self.spec.stages) == 1:
            of_task["stages"] = [self.spec.stages[0].model_dump(exclude_unset=True, exclude={"prompt"})]
        task = self._with_changes(of_task) if of_task else self
        return task._with_stages(stages or {}, of_stages) if of_stages or stages else task

    def configure(self, given: Config | None = None) -> Config:
        """How its replies are graded and reported: as configured, else as the task says.

        A task's list of aggregators gains those that its metrics name for their repeats.
        """
        spec, config = self.spec, given or Config()
        more = repeat_aggregators(spec)
        aggregate = (*spec.aggregate, *(name for name in more if name not in spec.aggregate)) if spec.aggregate else ()
        grading, report, groups = config.grading, config.report, spec.groups
        return replace(
            config,
            grading=replace(
                grading,
                extract=grading.extract or spec.extract,
                metrics=grading.metrics or tuple(m.metric for m in spec.metrics),
                aggregate=grading.aggregate or aggregate,
                by=grading.by or tuple(spec.segments),
                use=grading.use or spec.use,
            ),
            report=replace(
                report,
                task=spec.name,
                task_version=spec.version,
                group=report.group or (groups.field if groups else None),
                types=report.types or (groups.types if groups else {}),
                weights=report.weights or (groups.weights if groups else {}),
                metric_weights=report.metric_weights or {m.metric: m.weight for m in spec.metrics if m.weight != 1.0},
                verdict=report.verdict or spec.verdict,
                policy=report.policy or policy_of(spec),
                case_rule=case_rule_of(spec),
            ),
        )

    def metric_configs(self) -> list[MetricConfig]:
        """The metrics, for those who score one case at a time."""
        found = []
        for one in self.spec.metrics:
            how: Any = one.repeat_aggregation
            if how is not None and how not in REPEAT_AGGREGATORS:
                how = partial(_aggregated, REPEATS.get(how, how))
            kind = self.spec.output_type
            found.append(MetricConfig(one.metric, metric(one.metric), repeat_aggregation_fn=how, output_type=kind))
        return found

    def fingerprint(self) -> str:
        """What is asked and how it is graded, as 16 hexadecimal digits; the description does not matter."""
        # what changes neither a prompt nor a grade must not make stored results look outdated
        return _digest(self.spec.model_dump(mode="json", exclude={"description", "limit", "repeats", "use"}))[:16]

    def dataset_digest(self, items: Sequence[Item]) -> str:
        """What these items hold, as a SHA-256, whatever file they came from."""
        return _digest([[i.case.id, i.case.references, i.case.choices, i.case.weight, dict(i.fields)] for i in items])

    def locate_data(self, data: Path | None = None) -> Path | None:
        """The file or folder of the data; None where the records are in the task file or on Hugging Face."""
        return locate(self.spec.dataset, self.name, self.folder, data)

    def _records(self, data: Path | None) -> Iterator[PlacedRecord]:
        place = self.locate_data(data)
        if place is not None:
            return records_at(place, subjects=self._subjects)
        own = self.spec.dataset.records
        if own is not None:
            return (PlacedRecord(f"{self.source}: dataset.{at}", r) for at, r in enumerate(own))
        return hub_records(self.spec.dataset)

    @property
    def _subjects(self) -> bool:
        return self.spec.shape is not None and SHAPES[self.spec.shape].subjects

    def _dev(self, source: Any, data: Path | None) -> Iterator[PlacedRecord]:
        if isinstance(source, list):
            return (PlacedRecord(f"{self.source}: fewshot.source.{at}", r) for at, r in enumerate(source))
        if source != "dev":
            path = (self.folder / source) if self.folder else Path(source)
            if not path.exists():
                raise InputError(f"task {self.name}: fewshot.source: {path}: no such file")
            return records_at(path, subjects=self._subjects)
        place = self.locate_data(data)
        if place is not None:
            return dev_records(place, subjects=self._subjects)
        if self.spec.dataset.hf is None:
            problem = "no dev examples beside records of the task file itself"
            raise InputError(f"task {self.name}: fewshot.source: {problem}")
        return hub_records(self.spec.dataset, "dev" if self._subjects else "train")

    def _check_names(self, items: Sequence[Item]) -> None:
        """Refuse a prompt that names what some item has not."""
        recipe = TaskRecipe(spec=self.spec)
        for at, stage in enumerate(recipe.stages):
            needed = set(recipe.names(at))
            for item in items:
                if missing := sorted(needed - item.fields.keys()):
                    problem = f"{{{missing[0]}}} is no field of item {item.case.id!r}"
                    there = ", ".join(sorted(item.fields))
                    raise InputError(f"{self.source}: stage {stage.name}: {problem}: there is {there}")

    def _check_groups(self, items: Sequence[Item]) -> None:
        """Refuse a type or a weight of a group that no item belongs to."""
        groups = self.spec.groups
        if groups is None:
            return
        there = list(dict.fromkeys(item.case.tags.get(groups.field, "") for item in items))
        for name in (*groups.types, *groups.weights):
            if name not in there:
                raise InputError(f"{self.source}: groups: {UnknownName('group', name, there)}")

    def _with_stages(self, named: Mapping[str, Mapping[str, Any]], common: Mapping[str, Any]) -> Task:
        """Settings of stages, those named for one and those that are common, where it is clear whose they are."""
        stages = self.spec.all_stages()
        names = [stage.name for stage in stages]
        for name in named:
            if name not in names:
                raise UnknownName("stage", name, names)
        of_parts = all(setting in PartSpec.model_fields for settings in named.values() for setting in settings)
        if self.spec.two_stage and common.keys() <= {"temperature"} and of_parts:
            # stays a `two_stage` task, so that `markovian` and the weight of the actor are still known
            reasoning, answer = named.get("reasoning"), named.get("answer")
            return self.two_staged(temperature=common.get("temperature"), reasoning=reasoning, answer=answer)
        many = len(stages) > 1
        if unclear := [name for name in common if many and name != "temperature"]:
            ask = f"say whose {unclear[0]} it is, such as {names[0]}.{unclear[0]}"
            raise InputError(f"task {self.name} has the stages {' and '.join(names)}: {ask}")
        body = []
        for stage in stages:
            fixed = many and stage.temperature == 0
            own = {k: v for k, v in common.items() if not (k == "temperature" and fixed)}
            body.append({**stage.model_dump(exclude_unset=True), **own, **named.get(stage.name, {})})
        return self._with_changes({"stages": body, "two_stage": None})

    def _with_changes(self, changes: Mapping[str, Any]) -> Task:
        # only what was set: a default that was written out would look like a choice, and conflict with the changes
        body = {**self.spec.model_dump(mode="json", exclude_unset=True), **changes}
        kept = {name: value for name, value in body.items() if value is not None}
        return check_names(replace(self, spec=parse_spec(kept, self.source)))


def _digest(value: Any) -> str:
    from hashlib import sha256

    import orjson

    return sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_names(task: Task) -> Task:
    """The task, once every extractor, metric and aggregator it names is known to exist.

    Functions of the user's own are imported when a run begins, not by whoever looks at the task.
    """
    spec = task.spec
    rules = (*spec.aggregate, *(m.repeat_aggregation for m in spec.metrics if m.repeat_aggregation))
    try:
        if spec.extract is not None and not spec.extract.startswith("llm") and not _is_own(spec.extract):
            extractor(spec.extract)
        for name in (one.metric for one in spec.metrics):
            if not _is_own(name):
                metric(name)
        for name in rules:
            if not _is_own(name):
                aggregator(REPEATS.get(name, name))
    except InputError as problem:
        raise InputError(f"{task.source}: {problem}") from None
    return task


def _is_own(spec: str) -> bool:
    """Whether a name is that of a function of the user's own, module:thing."""
    return ":" in spec.partition("(")[0]
