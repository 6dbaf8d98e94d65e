"""The schema of a task file (pydantic). Every part is strict: wrong types and unknown keys are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from kofn.core.yaml_file import Strict, parse_model
from kofn.errors import InputError, UnknownName
from kofn.registry import check_unique
from kofn.scoring.configuration import GroupType, PassPolicy
from kofn.tasks.shapes import ROLES, SHAPES
from kofn.tasks.stages import Template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kofn.core.yaml_file import Yaml

QUESTION = "{question_and_options}"
REASONING = f"Question: {QUESTION}\nReasoning:"
ANSWER = "Reasoning: {cot}\nAnswer:"
NOT_MARKOVIAN = f"Question: {QUESTION}\n{ANSWER}"
CHOOSING = "Question: {question}\n{options}\nAnswer:"
REASONED = ("cot", "reasoning")  # how an answer prompt may name the stage before it

OutputType = Literal["generate_until", "loglikelihood", "multiple_choice"]

# YAML has lists, and what is frozen holds tuples
Texts = Annotated[tuple[str, ...], Field(strict=False)]
OneOrMany = Annotated[Texts, BeforeValidator(lambda given: (given,) if isinstance(given, str) else given)]
TemplateText = Annotated[str | None, AfterValidator(lambda text: None if text is None else Template(text).text)]


class StageSpec(Strict):
    """One call: which model is asked what, and how it samples, None leaving it to the server.

    `chat` None: in messages where the model is a chat model.
    """

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int = Field(default=256, ge=1)
    stop: OneOrMany = ()
    logprobs: bool = False
    name: str = Field(default="answer", pattern=r"^[^\W\d]\w*$")
    model: str = "actor"
    prompt: TemplateText = None
    system: TemplateText = None
    chat: bool | None = None

    @field_validator("name")
    @classmethod
    def _is_free(cls, name: str) -> str:
        if name == "cot":
            raise InputError("cot always stands for the stage before: give the stage another name")
        return name


class PartSpec(Strict):
    """One stage of two: its prompt where it is not the usual one, and how long it may be."""

    prompt: TemplateText = None
    max_tokens: int | None = Field(default=None, ge=1)
    stop: OneOrMany = ()


class TwoStageSpec(Strict):
    """The actor reasons at the training temperature, then the answer follows from the reasoning at temperature 0.

    Markovian: the answer prompt holds the reasoning and not the question. The critic answers, or the actor itself
    when `actor_reward_weight` is above 0.
    """

    markovian: bool = True
    actor_reward_weight: float = Field(default=0.0, ge=0)
    temperature: float = Field(default=1.0, ge=0)
    reasoning: PartSpec = Field(default_factory=PartSpec)
    answer: PartSpec = Field(default_factory=PartSpec)

    @model_validator(mode="after")
    def _forgets_the_question(self) -> TwoStageSpec:
        named = Template(self.answer.prompt or ANSWER).names
        leaked = [name for name in named if name not in REASONED]
        if self.markovian and leaked:
            rule = "a Markovian answer sees the reasoning alone, {cot}; say markovian: false"
            raise InputError(f"answer.prompt names {{{leaked[0]}}}: {rule}")
        return self

    def stages(self) -> tuple[StageSpec, StageSpec]:
        """The two stages, as raw completions."""
        usual = ANSWER if self.markovian else NOT_MARKOVIAN
        reasoning = StageSpec(
            name="reasoning",
            model="actor",
            prompt=self.reasoning.prompt or REASONING,
            chat=False,
            temperature=self.temperature,
            max_tokens=self.reasoning.max_tokens or 256,
            stop=self.reasoning.stop,
        )
        answer = StageSpec(
            name="answer",
            model="actor" if self.actor_reward_weight > 0 else "critic",
            prompt=self.answer.prompt or usual,
            chat=False,
            temperature=0.0,
            max_tokens=self.answer.max_tokens or 32,
            stop=self.answer.stop,
        )
        return reasoning, answer


class FewshotSpec(Strict):
    """Examples before the first stage's prompt. `seed` None takes the first ones, else they are drawn for every case.

    `per_repeat`: every repeat draws its own; None means in multiple_choice alone. Where the examples have groups, a
    case is shown those of its own group.
    """

    count: int = Field(ge=0)
    source: Any = "dev"
    seed: int | None = None
    per_repeat: bool | None = None
    answer: TemplateText = None

    @field_validator("source")
    @classmethod
    def _is_source(cls, given: Any) -> Any:
        if isinstance(given, str) or (isinstance(given, list) and all(isinstance(r, dict) for r in given)):
            return given
        raise InputError('expected a path, "dev", or a list of records')


class MetricSpec(Strict):
    """A metric: its weight in the report, and the aggregator that makes its repeats one value per case."""

    metric: str
    weight: float = Field(default=1.0, gt=0)
    aggregation: Literal["mean"] = "mean"
    repeat_aggregation: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"metric": given} if isinstance(given, str) else given


class GroupsSpec(Strict):
    """The field whose values are the groups, what the groups are for, and what they weigh."""

    field: str = "group"
    types: dict[str, str] = Field(default_factory=dict)
    weights: dict[str, float] = Field(default_factory=dict)

    @field_validator("types")
    @classmethod
    def _known_types(cls, given: dict[str, str]) -> dict[str, str]:
        for kind in given.values():
            GroupType(kind)
        return given

    @field_validator("weights")
    @classmethod
    def _positive(cls, given: dict[str, float]) -> dict[str, float]:
        for name, weight in given.items():
            if weight <= 0:
                raise InputError(f"{name}: a weight is above 0, not {weight:g}")
        return given


class DatasetSpec(Strict):
    """Where the records are: a path, records written here, file names to look for, or a Hugging Face id."""

    path: str | None = None
    records: list[dict[str, Any]] | None = None
    files: Texts = ()
    url: str | None = None
    hf: str | None = None
    config: str | None = None
    split: str = "test"

    @model_validator(mode="before")
    @classmethod
    def _short_forms(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"path": given}
        return {"records": given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _one_source(self) -> DatasetSpec:
        if sum([self.path is not None, self.records is not None, bool(self.files or self.hf)]) != 1:
            raise InputError("expected a path, a list of records, or a mapping with `files` or `hf`")
        return self


class MultipleChoiceSpec(Strict):
    """Options by log-likelihood: whether the prompt lists them, and whether their texts or letters are scored."""

    list_options: bool = True
    score: Literal["text", "letter"] = "text"


class TaskSpec(Strict):
    """A whole task file."""

    name: str = Field(pattern=r"^[\w.-]+$")
    version: int = Field(default=1, ge=1)
    description: str = ""
    dataset: DatasetSpec
    shape: str | None = None
    fields: dict[str, str] = Field(default_factory=dict)
    stages: Annotated[tuple[StageSpec, ...], Field(strict=False)] = ()
    two_stage: TwoStageSpec | None = None
    fewshot: FewshotSpec | None = None
    output_type: OutputType = "generate_until"
    multiple_choice: MultipleChoiceSpec = Field(default_factory=MultipleChoiceSpec)
    extract: str | None = None
    metrics: Annotated[tuple[MetricSpec, ...], Field(strict=False)] = ()
    repeats: int = Field(default=5, ge=1)
    aggregate: Texts = ()
    verdict: str | None = None
    groups: GroupsSpec | None = None
    segments: Texts = ()
    limit: int | None = Field(default=None, ge=1)
    policy: Annotated[str, AfterValidator(lambda name: PassPolicy(name).value)] = PassPolicy.CORE_CASES.value
    use: Literal["any", "vote", "select", "list", "all"] | None = None

    @field_validator("shape")
    @classmethod
    def _known_shape(cls, name: str | None) -> str | None:
        if name is not None and name not in SHAPES:
            raise UnknownName("shape", name, list(SHAPES))
        return name

    @field_validator("fields")
    @classmethod
    def _known_roles(cls, given: dict[str, str]) -> dict[str, str]:
        for role, name in given.items():
            if role not in ROLES:
                raise UnknownName("role", role, list(ROLES))
            if "{" in name or "}" in name:
                Template(name)
        return given

    @model_validator(mode="after")
    def _one_way_of_asking(self) -> TaskSpec:
        if self.stages and self.two_stage:
            raise InputError("stages and two_stage both say what is asked: give one")
        check_unique([stage.name for stage in self.stages], "two stages are called {!r}: give each a name of its own")
        for stage in self.stages[1:]:
            if stage.prompt is None:
                raise InputError(f"stage {stage.name!r} has no prompt: say how it uses the stage before, as {{cot}}")
        return self

    def all_stages(self) -> tuple[StageSpec, ...]:
        """What is asked, in order: the stages given, the two of `two_stage`, or one that asks the question."""
        if self.two_stage:
            return self.two_stage.stages()
        usual = CHOOSING if self.output_type == "multiple_choice" else QUESTION
        stages = self.stages or (StageSpec(),)
        return tuple(s if s.prompt is not None else s.model_copy(update={"prompt": usual}) for s in stages)


# settings of a stage that a task with one stage may have at its top level
OF_ONE_STAGE = ("prompt", "system", "temperature", "top_p", "max_tokens", "stop", "chat")


def parse_spec(value: Mapping[str, Any], source: str, file: Yaml | None = None) -> TaskSpec:
    """The specification that a mapping holds. `prompt` at its top level makes a task of one stage.

    >>> parse_spec({"name": "sums", "dataset": [{"q": "1 + 1"}], "prompt": "{q} ="}, "sums").stages[0].prompt
    '{q} ='
    """
    own = {name: value[name] for name in OF_ONE_STAGE if name in value}
    if not own:
        return parse_model(TaskSpec, dict(value), source, file)
    if several := next((name for name in ("stages", "two_stage") if value.get(name)), None):
        line = file.line([next(iter(own))]) if file else None
        where = f"{source}: line {line}" if line else source
        problem = f"{next(iter(own))}: belongs to a task with one stage, and this one has `{several}`"
        raise InputError(f"{where}: {problem}: put it there")
    parse_model(StageSpec, own, source, file)  # a mistake is told where it stands in the file
    rest = {name: given for name, given in value.items() if name not in own}
    return parse_model(TaskSpec, {**rest, "stages": [own]}, source, file)
