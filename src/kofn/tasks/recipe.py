"""How a task asks: the prompt of every stage, and the options whose likelihood is compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kofn.generate.stages import Stage
from kofn.models.base import Message, Sampling
from kofn.tasks.fewshot import Shots, order_of
from kofn.tasks.items import listed
from kofn.tasks.records import Option
from kofn.tasks.template import Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.generate.stages import Item
    from kofn.models.base import Prompt
    from kofn.tasks.spec import StageSpec, TaskSpec

KINDS = {"generate_until": "generate", "loglikelihood": "likelihood", "multiple_choice": "choose"}


@dataclass(frozen=True, slots=True)
class _Asked:
    """One stage ready to be filled in."""

    stage: Stage
    prompt: Template
    system: Template | None
    chat: bool | None


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """The `Recipe` of a task. `seed` decides the order of options; few-shot examples have their own.

    In messages the examples are turns of a conversation. In a completion they are blocks of text above the prompt,
    the system text first, with a blank line between.
    """

    spec: TaskSpec
    shots: Shots = field(default_factory=Shots)
    seed: int = 0
    _asked: tuple[_Asked, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stages = self.spec.all_stages()
        kinds = ["generate"] * (len(stages) - 1) + [KINDS[self.spec.output_type]]
        object.__setattr__(self, "_asked", tuple(map(self._ready, stages, kinds)))

    @property
    def stages(self) -> Sequence[Stage]:
        """What is asked of which model, in order."""
        return tuple(one.stage for one in self._asked)

    def prompt(self, item: Item, stage: int, repeat: int, outputs: Mapping[str, str], *, chat: bool) -> Prompt:
        """What is sent. A stage whose likelihood is asked for is always a text to continue."""
        asked = self._asked[stage]
        shots = self.shots.of(item, repeat) if stage == 0 else ()
        turns = [(self._filled(asked, e, 0, {}), self._shown(asked, e)) for e in shots]
        last = self._filled(asked, item, repeat, self._before(stage, outputs))
        system = asked.system.fill(item.fields) if asked.system else None
        generates = asked.stage.kind == "generate"
        if generates and (chat if asked.chat is None else asked.chat):
            return _messages(system, turns, last)
        text = "\n\n".join([*([system] if system else []), *(_joined(p, a) for p, a in turns), last])
        return text if generates else text.rstrip()

    def options(self, item: Item, stage: int, repeat: int) -> list[tuple[str, str]]:
        """(the file's own label or reference, what is scored), in the order of this repeat."""
        if self._asked[stage].stage.kind == "likelihood":
            return [(reference, f" {reference}") for reference in item.case.references]
        own = parsed(item.case.choices)
        order = order_of(len(own), self.seed, item.case.id, repeat)
        if self.spec.multiple_choice.score == "letter":
            return [(own[i].label, f" {own[place].label}") for place, i in enumerate(order)]
        return [(own[i].label, f" {own[i].text}") for i in order]

    def names(self, stage: int) -> tuple[str, ...]:
        """What the prompt and the system text of a stage ask for, other than what earlier stages gave."""
        asked = self._asked[stage]
        wanted = (*asked.prompt.names, *(asked.system.names if asked.system else ()))
        return tuple(name for name in wanted if name not in self._before(stage, None))

    def _ready(self, spec: StageSpec, kind: str) -> _Asked:
        sampling = Sampling(
            temperature=spec.temperature,
            top_p=spec.top_p,
            max_tokens=spec.max_tokens,
            stop=spec.stop,
            logprobs=spec.logprobs,
        )
        stage = Stage(name=spec.name, model=spec.model, sampling=sampling, kind=kind)
        text = spec.prompt or ""
        if kind == "choose" and not self.spec.multiple_choice.list_options:
            text = text.replace("\n{options}", "")  # no empty line where they would stand
        return _Asked(stage, Template(text), Template(spec.system) if spec.system else None, spec.chat)

    def _before(self, stage: int, outputs: Mapping[str, str] | None) -> dict[str, str]:
        """What earlier stages gave, by name; `cot` is the stage before. Without outputs, only the names."""
        earlier = [one.stage.name for one in self._asked[:stage]]
        given = {name: outputs[name] if outputs else "" for name in earlier}
        return {**given, "cot": given[earlier[-1]]} if earlier else given

    def _filled(self, asked: _Asked, item: Item, repeat: int, outputs: Mapping[str, str]) -> str:
        fields = item.fields
        if self._asked[-1].stage.kind == "choose" and item.case.choices:  # the stages before see the same list
            fields = {**fields, **self._listing(item, repeat)}
        return asked.prompt.fill({**fields, **outputs})

    def _listing(self, item: Item, repeat: int) -> dict[str, str]:
        """The options as this repeat lists them: the labels stay in place, the texts move."""
        question = item.fields["question"]
        if not self.spec.multiple_choice.list_options:
            return {"options": "", "question_and_options": question}
        own = parsed(item.case.choices)
        order = order_of(len(own), self.seed, item.case.id, repeat)
        text = listed([Option(own[place].label, own[i].text) for place, i in enumerate(order)])
        return {"options": text, "question_and_options": f"{question}\n{text}"}

    def _shown(self, asked: _Asked, example: Item) -> str:
        """What an example answers: as the task says, else its reference, in the form that is asked for."""
        few = self.spec.fewshot
        if few is not None and few.answer is not None:
            return Template(few.answer).fill(example.fields)
        label = example.fields["reference"]
        if asked.stage.kind != "choose" or self.spec.multiple_choice.score == "letter":
            return label
        return next((o.text for o in parsed(example.case.choices) if o.label == label), label)


def parsed(choices: Sequence[str]) -> list[Option]:
    """Options as items hold them, "A) red", with label and text apart.

    >>> parsed(["A) red", "B)"])
    [Option(label='A', text='red'), Option(label='B', text='')]
    """
    parts = [choice.partition(")") for choice in choices]
    return [Option(label, text.strip()) for label, _, text in parts]


def _messages(system: str | None, turns: Sequence[tuple[str, str]], last: str) -> tuple[Message, ...]:
    told = [Message("system", system)] if system else []
    for asked, answered in turns:
        told += [Message("user", asked), Message("assistant", answered)]
    return (*told, Message("user", last))


def _joined(prompt: str, answer: str) -> str:
    return f"{prompt}{answer}" if prompt[-1:].isspace() else f"{prompt} {answer}"
