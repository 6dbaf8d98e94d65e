"""Prompts of a task: what each stage sends for an item, its few-shot examples, and the options it compares."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import permutations
from typing import TYPE_CHECKING

from kofn.models.base import Message, Sampling
from kofn.tasks.items import list_options
from kofn.tasks.shapes import Option
from kofn.tasks.stages import Stage, Template

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kofn.models.base import Prompt
    from kofn.tasks.spec import StageSpec, TaskSpec
    from kofn.tasks.stages import Item

_SPARE = 4  # examples drawn beyond the count, because the case itself may be among them
_FEW = 5  # up to so many options every order is used once before one comes again; 6 would have 720 orders
KINDS = {"generate_until": "generate", "loglikelihood": "likelihood", "multiple_choice": "choose"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shots:
    """Examples to draw from. A case is shown those of its group where they have groups, and never itself."""

    pool: tuple[Item, ...] = ()
    count: int = 0
    seed: int | None = None
    per_repeat: bool = False
    group: str = "group"
    _of_group: dict[str | None, tuple[Item, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = {None, *(example.fields.get(self.group) for example in self.pool)}
        own = {g: tuple(e for e in self.pool if e.fields.get(self.group) in (None, g)) for g in groups}
        object.__setattr__(self, "_of_group", own)

    def of(self, item: Item, repeat: int) -> tuple[Item, ...]:
        """The examples a case is shown in one repeat."""
        if not self.count:
            return ()
        own = self._of_group.get(item.fields.get(self.group), self._of_group[None])
        repeat = repeat if self.per_repeat else 0
        count = min(self.count + _SPARE, len(own))
        if self.seed is None and repeat == 0:
            found: Sequence[Item] = own[:count]
        else:
            found = seeded_random(self.seed or 0, "shots", item.case.id, repeat).sample(own, count)
        # an example that is the case itself would give its answer away
        question = _plain(item)
        others = tuple(e for e in found if _plain(e) != question)
        if len(others) < self.count and count < len(own):
            others = tuple(e for e in own if _plain(e) != question)  # many copies of the case itself
        return others[: self.count]


def _plain(item: Item) -> str:
    """The question as anybody would compare it: spaces, capitals and the order of options do not matter."""
    return " ".join(item.fields["question"].casefold().split())


def seeded_random(seed: int, what: str, case_id: str, repeat: int) -> random.Random:
    """A source of draws of its own for every seed, case and repeat, the same on every machine."""
    digest = blake2b(f"{seed}\x00{what}\x00{case_id}\x00{repeat}".encode(), digest_size=8).digest()
    return random.Random(int.from_bytes(digest, "little"))  # noqa: S311 - seeded, not secret


def option_order(n: int, seed: int, case_id: str, repeat: int) -> tuple[int, ...]:
    """The order of n options in a repeat: repeat 0 has that of the file, the next ones others, by seed and case.

    >>> option_order(4, 0, "q1", 0)
    (0, 1, 2, 3)
    >>> len({option_order(3, 0, "q1", r) for r in range(6)})
    6
    """
    if repeat == 0 or n < 2:
        return tuple(range(n))
    if n > _FEW:
        order = list(range(n))
        seeded_random(seed, "order", case_id, repeat).shuffle(order)
        return tuple(order)
    # shuffled once per case, not per repeat: so the repeats go through all orders before one comes again
    orders = list(permutations(range(n)))
    others = orders[1:]
    seeded_random(seed, "order", case_id, 0).shuffle(others)
    return [orders[0], *others][repeat % len(orders)]


@dataclass(frozen=True, slots=True)
class _StagePrompt:
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
    _stage_prompts: tuple[_StagePrompt, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        stages = self.spec.all_stages()
        kinds = ["generate"] * (len(stages) - 1) + [KINDS[self.spec.output_type]]
        object.__setattr__(self, "_stage_prompts", tuple(map(self._ready, stages, kinds)))

    @property
    def stages(self) -> Sequence[Stage]:
        """What is asked of which model, in order."""
        return tuple(one.stage for one in self._stage_prompts)

    def prompt(self, item: Item, stage: int, repeat: int, outputs: Mapping[str, str], *, chat: bool) -> Prompt:
        """What is sent. A stage whose likelihood is asked for is always a text to continue."""
        stage_prompt = self._stage_prompts[stage]
        shots = self.shots.of(item, repeat) if stage == 0 else ()
        turns = [(self._fill(stage_prompt, e, 0, {}), self._example_answer(stage_prompt, e)) for e in shots]
        last = self._fill(stage_prompt, item, repeat, self._before(stage, outputs))
        system = stage_prompt.system.fill(item.fields) if stage_prompt.system else None
        generates = stage_prompt.stage.kind == "generate"
        if generates and (chat if stage_prompt.chat is None else stage_prompt.chat):
            said = [one for p, a in turns for one in (Message("user", p), Message("assistant", a))]
            return (*([Message("system", system)] if system else []), *said, Message("user", last))
        blocks = [f"{p}{a}" if p[-1:].isspace() else f"{p} {a}" for p, a in turns]
        text = "\n\n".join([*([system] if system else []), *blocks, last])
        # Options begin with their space (`options`): most tokenizers write it at the beginning of a word, so that a
        # prompt with a space at its end would be followed by tokens the model has hardly seen.
        return text if generates else text.rstrip()

    def options(self, item: Item, stage: int, repeat: int) -> list[tuple[str, str]]:
        """(the file's own label or reference, what is scored), in the order of this repeat."""
        if self._stage_prompts[stage].stage.kind == "likelihood":
            return [(reference, f" {reference}") for reference in item.case.references]
        own = parse_options(item.case.choices)
        order = option_order(len(own), self.seed, item.case.id, repeat)
        if self.spec.multiple_choice.score == "letter":
            return [(own[i].label, f" {own[place].label}") for place, i in enumerate(order)]
        return [(own[i].label, f" {own[i].text}") for i in order]

    def names(self, stage: int) -> tuple[str, ...]:
        """What the prompt and the system text of a stage ask for, other than what earlier stages gave."""
        stage_prompt = self._stage_prompts[stage]
        found = (*stage_prompt.prompt.names, *(stage_prompt.system.names if stage_prompt.system else ()))
        return tuple(name for name in found if name not in self._before(stage, None))

    def _ready(self, spec: StageSpec, kind: str) -> _StagePrompt:
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
        return _StagePrompt(stage, Template(text), Template(spec.system) if spec.system else None, spec.chat)

    def _before(self, stage: int, outputs: Mapping[str, str] | None) -> dict[str, str]:
        """What earlier stages gave, by name; `cot` is the stage before. Without outputs, only the names."""
        earlier = [one.stage.name for one in self._stage_prompts[:stage]]
        given = {name: outputs[name] if outputs else "" for name in earlier}
        return {**given, "cot": given[earlier[-1]]} if earlier else given

    def _fill(self, stage_prompt: _StagePrompt, item: Item, repeat: int, outputs: Mapping[str, str]) -> str:
        listed: dict[str, str] = {}
        if self._stage_prompts[-1].stage.kind == "choose" and item.case.choices:  # the stages before see the same list
            listed = {"options": "", "question_and_options": item.fields["question"]}
            if self.spec.multiple_choice.list_options:
                own = parse_options(item.case.choices)
                # texts move and labels stay, so that a preference for a letter averages out over the repeats
                order = option_order(len(own), self.seed, item.case.id, repeat)
                text = list_options([Option(own[place].label, own[i].text) for place, i in enumerate(order)])
                listed = {"options": text, "question_and_options": f"{item.fields['question']}\n{text}"}
        return stage_prompt.prompt.fill({**item.fields, **listed, **outputs})

    def _example_answer(self, stage_prompt: _StagePrompt, example: Item) -> str:
        """What an example answers: as the task says, else its reference, in the form that is asked for."""
        few = self.spec.fewshot
        if few is not None and few.answer is not None:
            return Template(few.answer).fill(example.fields)
        label = example.fields["reference"]
        if stage_prompt.stage.kind != "choose" or self.spec.multiple_choice.score == "letter":
            return label
        return next((o.text for o in parse_options(example.case.choices) if o.label == label), label)


def parse_options(choices: Sequence[str]) -> list[Option]:
    """Options as items hold them, "A) red", with label and text apart.

    >>> parse_options(["A) red", "B)"])
    [Option(label='A', text='red'), Option(label='B', text='')]
    """
    parts = [choice.partition(")") for choice in choices]
    return [Option(label, text.strip()) for label, _, text in parts]
