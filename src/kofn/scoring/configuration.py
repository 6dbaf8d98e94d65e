"""The configuration of a run in three parts: what to generate, how to grade, what to report.

It is built once, by `configure`, from the command line, a task file or Python, checked there, and passed on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError, UnknownName
from kofn.scoring.policy import PassPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from kofn.scoring.policy import GroupType
    from kofn.scoring.splits import Split

Spec = str | Callable[..., Any]  # a registered name with its settings, "module:name", or a function itself

DEFAULT_MODEL = "smollm2"
DEFAULT_READER = "anthropic:claude-haiku-4-5"  # reads answers where `--extract llm` names no model
CONFIDENCE = 0.95
# how a product uses a set -> the beginnings of the names of aggregators that measure that
USES: dict[str, tuple[str, ...]] = {
    "any": ("any_pass", "pass@", "pass_at", "at_least", "best_score"),
    "vote": ("majority", "maj@", "maj_at", "weighted_vote", "g_pass@"),
    "select": ("selected",),
    "list": ("ndcg", "dcg", "mrr", "precision", "recall"),
    "all": ("all_pass", "all_correct", "pass^", "pass_hat", "coverage", "facet_coverage", "mean"),
}
LONGEST_TAG, MOST_TAGS = 80, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationConfig:
    """What to generate. Everything has a default; None means what the task says.

    what is asked
      model           the actor: a name ("smollm2", "openai:gpt-4o-mini", "hf:PATH"...), a model, or a callable
      answer_model    the critic, which answers in the second of two stages (default: the actor's base model)
      repeats         candidates per case
      temperature, top_p, max_tokens, stop, chat   how outputs are drawn, in the first stage of several
      two_stage, markovian, actor_reward_weight    reason first, answer second; see docs/run.md
      compare_markovian   answer each reasoning both without and with the question, and compare
      adaptive, max_repeats, confidence            stop a case when its leading answer is safe; `repeats` is then
                      what every case gets at least
    on which cases
      data            another file or folder than the task's, or rows
      limit           the first so many; `samples`: these ids; `sample`: so many, by group, drawn with the seed
    how it is run
      llm_extract     a model that reads answers too, beside the extractor
      seed, reproducible, concurrency, requests_per_second, tokens_per_minute, timeout, retries
      max_cost, max_tokens_total, max_time         stop when so much is spent
      retry_errors    ask again what failed before
      cache           take and keep replies of deterministic requests across runs
      prices          a file of prices
      progress        show it, on a terminal
      batch_size, device   for models computed on this machine
    """

    model: Any = DEFAULT_MODEL
    answer_model: Any = None
    repeats: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    chat: bool | None = None
    two_stage: bool = False
    markovian: bool | None = None
    actor_reward_weight: float | None = None
    compare_markovian: bool = False
    adaptive: bool = False
    max_repeats: int | None = None
    confidence: float = CONFIDENCE
    data: Path | str | Sequence[Mapping[str, Any]] | None = None
    limit: int | None = None
    samples: Sequence[str] = ()
    sample: int | None = None
    llm_extract: Any = None
    seed: int = 0
    reproducible: bool = False
    concurrency: int | None = None
    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    timeout: float = 600.0
    retries: int = 6
    max_cost: float | None = None
    max_tokens_total: int | None = None
    max_time: float | None = None
    retry_errors: bool = False
    cache: bool = False
    prices: Path | None = None
    progress: bool = False
    batch_size: int | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "max_repeats", "limit", "sample", "max_tokens", "concurrency", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}: expected a whole number from 1")
        for name in ("requests_per_second", "tokens_per_minute", "timeout", "max_cost", "max_tokens_total", "max_time"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}: expected a number above 0")
        if self.temperature is not None and not 0 <= self.temperature <= 5:
            raise InputError(f"temperature is {self.temperature}: expected a number from 0 to 5")
        if self.max_repeats is not None and not self.adaptive:
            raise InputError("max_repeats is for adaptive repeats: give --adaptive too, or --repeats")
        if self.markovian is not None and self.compare_markovian:
            raise InputError("compare_markovian answers in both modes: leave markovian out")
        if self.adaptive and self.compare_markovian:
            raise InputError("adaptive repeats stop by one of two answers: leave out --adaptive or --compare-markovian")
        if self.confidence != CONFIDENCE and not self.adaptive:
            raise InputError("confidence is for adaptive repeats: give --adaptive too")
        if self.samples and self.sample is not None:
            raise InputError("samples names the cases and sample draws some: give one of the two")
        if self.repeats is not None and self.max_repeats is not None and self.repeats > self.max_repeats:
            raise InputError(f"repeats ({self.repeats}) is more than max_repeats ({self.max_repeats})")

    @property
    def mode(self) -> str:
        """How a run is made: bit for bit the same every time, or as fast as the machine can."""
        return "reproducible" if self.reproducible else "fast"

    @property
    def data_path(self) -> Path | None:
        """The file or folder to read instead of the task's own; records given in Python become part of the task."""
        return Path(self.data) if isinstance(self.data, str | Path) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class GradingConfig:
    """How to grade. Everything has a sensible default; in a run, what is left out is what the task says.

    `engine` calls metrics that take long on several processes or machines (`kofn.parallel`). `use` is how the product
    uses a set: any, vote, select, list or all. `split` takes the design or the test part of the cases.
    """

    extract: Spec | None = None
    metrics: tuple[Spec, ...] = ()
    aggregate: tuple[Spec, ...] = ()
    threshold: float | None = None
    top_k: int | None = None
    interval: str = "auto"
    level: float = 0.95
    n_resamples: int = 10_000
    seed: int = 0
    by: tuple[str, ...] = ()
    cluster: str | None = None
    weight: str | None = None
    engine: Any = None
    use: str | None = None
    split: Split | None = None

    def __post_init__(self) -> None:
        if self.use is not None and self.use not in USES:
            raise UnknownName("use", self.use, list(USES), hint="expected any, vote, select, list or all")

    def to_dict(self) -> dict[str, Any]:
        """As run.json keeps it."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "engine"}
        split = None if self.split is None else self.split.to_dict()
        return {**{name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()}, "split": split}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What to report, and where it is kept.

    task      what was evaluated; runs of one task can be compared
    group     the field whose values are the groups; None: one group of all cases
    types     group -> type; a group not named is Core
    weights   group -> weight, 1 where not named
    metric_weights  metric -> weight of its attribute, 1 where not named
    verdict   the aggregator that says whether a case passes, with or without a bound ("majority", "mean >= 0.8");
              None: the first aggregator of the result that can, else `first`
    policy    when the whole run passes; None: as the task says, else `core-cases`
    out       the run directory
    batch_index, append_results   a number for results.jsonl, and a file of several runs that gets the line too
    tags      words to find the run by
    """

    task: str = "task"
    task_version: int = 1
    name: str = "run"
    version: int = 1
    group: str | None = None
    types: Mapping[str, GroupType | str] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    metric_weights: Mapping[str, float] = field(default_factory=dict)
    verdict: str | None = None
    policy: PassPolicy | None = None
    threshold: float | None = None
    timestamp: datetime | None = None
    out: Path | None = None
    batch_index: int | None = None
    append_results: Path | None = None
    tags: Sequence[str] = ()

    def __post_init__(self) -> None:
        validate_tags(self.tags)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that configures a run."""

    generation: GenerationConfig = field(default_factory=GenerationConfig)
    grading: GradingConfig = field(default_factory=GradingConfig)
    report: ReportConfig = field(default_factory=ReportConfig)


# of a report: what follows from the task and the directory of a run, and is no option of it
_OF_RUN = ("task", "task_version", "name", "version", "timestamp")
_PATHS = ("out", "prices", "append_results")
_SEVERAL = ("metrics", "aggregate", "by")


def configure(given: Config | None = None, /, **options: Any) -> Config:
    """A configuration from keywords, each for the parts that have a field of this name; unknown ones are refused.

    >>> config = configure(repeats=3, metrics=["numeric"], seed=7)
    >>> config.generation.repeats, config.grading.metrics, config.generation.seed == config.grading.seed
    (3, ('numeric',), True)
    >>> configure(repeat=3)
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown option 'repeat': did you mean repeats or max_repeats?
    """
    known = {name: [f.name for f in fields(part) if f.name not in _OF_RUN] for name, part in _PARTS.items()}
    everything = list(dict.fromkeys(name for names in known.values() for name in names))
    for name in options:
        if name not in everything:
            raise UnknownName("option", name, everything)
    values = {name: _typed(name, value) for name, value in options.items()}
    config = given or Config()
    parts = {
        part: replace(getattr(config, part), **{name: values[name] for name in names if name in values})
        for part, names in known.items()
    }
    return Config(**parts)


_PARTS: dict[str, Any] = {"generation": GenerationConfig, "grading": GradingConfig, "report": ReportConfig}


def _typed(name: str, value: Any) -> Any:
    """A value as its field has it: in Python paths and policies are often given as text, and lists for tuples."""
    if name in _PATHS and isinstance(value, str):
        return Path(value)
    if name == "policy" and value is not None:
        return PassPolicy(value)
    if name in _SEVERAL:
        return (value,) if isinstance(value, str) else tuple(value)
    return value


def validate_tags(given: Iterable[str]) -> list[str]:
    """Tags as run.json keeps them: each once, in the order they came; what nobody could read or type is refused.

    >>> validate_tags(["baseline", " night ", "baseline"])
    ['baseline', 'night']
    >>> validate_tags([" "])
    Traceback (most recent call last):
    kofn.errors.InputError: tag ' ': expected a word of 1 to 80 characters that can be seen
    """
    # a single text is one tag, not its letters
    words = [given] if isinstance(given, str) else given
    found = list(dict.fromkeys(tag.strip() for tag in words))
    for tag in found:
        if not tag or len(tag) > LONGEST_TAG or not tag.isprintable():
            quoted = ascii(tag[:LONGEST_TAG]) if tag else "' '"
            raise InputError(f"tag {quoted}: expected a word of 1 to {LONGEST_TAG} characters that can be seen")
    if len(found) > MOST_TAGS:
        raise InputError(f"{len(found)} tags: a run takes at most {MOST_TAGS}")
    return found
