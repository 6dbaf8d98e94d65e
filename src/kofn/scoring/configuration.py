"""The configuration of a run (generate, grade, report), with `PassPolicy` and `Requirement`: when cases pass.

It is built once, by `configure`, from the command line, a task file or Python, checked there, and passed on. How values
become a pass, in `PassPolicy` and `Requirement`, is a part of what to report.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from math import isfinite
from numbers import Integral
from operator import ge, gt, le, lt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.core.types import Decision
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from kofn.core.types import Estimate
    from kofn.scoring.splits import Split
    from kofn.stats.intervals import Drawing

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
      limit           the first so many; `ids`: these; `sample`: so many, by group, drawn with the seed
    how it is run
      llm_extract     a model that reads answers too, beside the extractor
      seed, reproducible, concurrency, requests_per_second, tokens_per_minute, timeout, retries
      max_cost, token_budget, max_time         stop when so much is spent
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
    ids: Sequence[str] = ()
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
    token_budget: int | None = None
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
        for name in ("requests_per_second", "tokens_per_minute", "timeout", "max_cost", "token_budget", "max_time"):
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
        if self.ids and self.sample is not None:
            raise InputError("ids names the cases and sample draws some: give one of the two")
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
        k: Any = self.top_k
        if k is not None and (not isinstance(k, int) or k < 1):
            raise InputError(f"top_k takes a whole number of at least 1, not {k}")
        if self.threshold is not None and not isfinite(self.threshold):
            raise InputError(f"threshold takes a finite number, not {self.threshold}")

    @property
    def drawing(self) -> Drawing:
        """How intervals and p-values are made, as keywords of `kofn.stats`."""
        return {"level": self.level, "n_resamples": self.n_resamples, "seed": self.seed}

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
    verdict   the aggregator that says whether a case passes, with or without a bound ("majority", "mean >= 0.8")
    policy    when the whole run passes; with None here and for `verdict` the run has no verdict
    case_rule the aggregator that says whether a case passes where there is no `verdict`; None: the number of the
              declared use, else `first`, or another one where aggregators were asked for
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
    case_rule: str | None = None
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
_OF_RUN = ("task", "task_version", "name", "version", "timestamp", "case_rule")
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


class GroupType(StrEnum):
    """What a group of cases is for. An Error group tests error handling: it counts like any other."""

    CORE = "Core"
    FUNCTIONALITY = "Functionality"
    REGRESSION = "Regression"
    ERROR = "Error"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        raise UnknownName("group type", str(value), [], f"expected one of {', '.join(cls)}")


class PassPolicy(StrEnum):
    """When a checkpoint passes. A policy over no cases is never met; `core-cases` and `all-core-cases` are one.

    >>> PassPolicy("core-cases").check({"Core": 2}, {"Core": 2, "Error": 1})
    True
    >>> PassPolicy("all-cases").explain({"Core": 2}, {"Core": 2, "Error": 1})
    'all-cases: 2 of 3 cases pass (Error 0 of 1)'
    >>> PassPolicy("core-cases").explain({"Error": 1}, {"Error": 1})
    'core-cases: no core cases'
    """

    ANY = "any"
    ANY_CASE = "any-case"
    ALL_CASES = "all-cases"
    ALL_NON_ERROR_CASES = "all-non-error-cases"
    CORE_CASES = "core-cases"
    ANY_CORE_CASES = "any-core-cases"
    ALL_CORE_CASES = "all-core-cases"

    @classmethod
    def _missing_(cls, value: object) -> PassPolicy:
        raise UnknownName("policy", str(value), [], f"expected one of {', '.join(cls)}")

    @property
    def types(self) -> tuple[GroupType, ...]:
        """The types whose cases the policy looks at."""
        if self in (PassPolicy.CORE_CASES, PassPolicy.ANY_CORE_CASES, PassPolicy.ALL_CORE_CASES):
            return (GroupType.CORE,)
        if self is PassPolicy.ALL_NON_ERROR_CASES:
            return tuple(t for t in GroupType if t is not GroupType.ERROR)
        return tuple(GroupType)

    @property
    def needs_all(self) -> bool:
        """Whether every case it looks at must pass, or one is enough."""
        return self not in (PassPolicy.ANY, PassPolicy.ANY_CASE, PassPolicy.ANY_CORE_CASES)

    @property
    def noun(self) -> str:
        """What its cases are called."""
        # by how many of the four types it looks at
        return {1: "core cases", 3: "non-error cases"}.get(len(self.types), "cases")

    def check(self, pass_counts: Mapping[Any, int], total_counts: Mapping[Any, int]) -> bool:
        """Whether these counts (by group type) meet the policy; false where there is no case to look at."""
        return self.decide(pass_counts, total_counts).passed

    def explain(
        self,
        pass_counts: Mapping[Any, int],
        total_counts: Mapping[Any, int],
        infrastructure_failure: str | None = None,
    ) -> str:
        """Why the policy is met or not, in one line."""
        return self.decide(pass_counts, total_counts, infrastructure_failure).reason

    def decide(
        self,
        pass_counts: Mapping[Any, int],
        total_counts: Mapping[Any, int],
        infrastructure_failure: str | None = None,
    ) -> Decision:
        """The decision and its reason. A failure of the harness fails every policy."""
        passes, totals = _check_counts(pass_counts), _check_counts(total_counts)
        for kind, n in passes.items():
            if n > totals.get(kind, 0):
                raise InputError(f"{kind}: {n} cases pass of {totals.get(kind, 0)}")
        # what a broken harness counted says nothing of the system
        if infrastructure_failure is not None:
            return self._decision(False, f"the harness failed: {infrastructure_failure}")
        passed = sum(passes.get(t, 0) for t in self.types)
        total = sum(totals.get(t, 0) for t in self.types)
        if not total:
            return self._decision(False, f"no {self.noun}")
        met = passed == total if self.needs_all else passed > 0
        short = [(t, passes.get(t, 0), totals[t]) for t in self.types if passes.get(t, 0) < totals.get(t, 0)]
        where = ", ".join(f"{t} {p} of {n}" for t, p, n in short)
        detail = f" ({where})" if where and len(self.types) > 1 else ""
        return self._decision(met, f"{passed:,} of {total:,} {self.noun} pass{detail}")

    def _decision(self, passed: bool, reason: str) -> Decision:
        return Decision(passed=passed, policy=self.value, reason=f"{self.value}: {reason}")


def _check_counts(given: Mapping[Any, Any]) -> dict[GroupType, int]:
    counts: dict[GroupType, Any] = {GroupType(kind): n for kind, n in given.items()}
    for kind, n in counts.items():
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 0:
            raise InputError(f"{kind}: a count of cases is a whole number of 0 or more, not {n!r}")
    return counts


_OPERATORS = {">=": ge, "<=": le, ">": gt, "<": lt}
_ESTIMATE_PARTS = ("point", "low", "high")
# the name is anything up to the operator: aggregators have parentheses, quotes and dots
_REQUIREMENT = re.compile(r"^\s*(?P<name>.+?)\s*(?P<operator>>=|<=|>|<)\s*(?P<bound>[-+.\deE]+)\s*(?P<percent>%?)\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A bound on an estimate's point or on an end of its interval.

    >>> Requirement.parse("any_pass.low >= 75%")
    Requirement(name='any_pass', part='low', operator='>=', bound=0.75)
    >>> str(Requirement.parse("ndcg(k=3) >= 0.5"))
    'ndcg(k=3) >= 0.5'
    """

    name: str
    part: str = "point"
    operator: str = ">="
    bound: float

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read `NAME[.low|.high] OP NUMBER[%]`; OP is >=, >, <= or <."""
        found = _REQUIREMENT.match(text)
        name, part = ("", "point") if found is None else _name_and_part(found["name"])
        if found is None or not name:
            raise InputError(f"requirement {text!r}: expected such as 'any_pass >= 0.8' or 'any_pass.low >= 75%'")
        try:
            bound = float(found["bound"])
        except ValueError:
            raise InputError(f"requirement {text!r}: {found['bound']!r} is not a number") from None
        if not isfinite(bound):
            raise InputError(f"requirement {text!r}: a bound is a finite number")
        return cls(name=name, part=part, operator=found["operator"], bound=bound / 100 if found["percent"] else bound)

    @classmethod
    def of_verdict(cls, text: str) -> Requirement:
        """The rule of a stored verdict; of one that names a rule a metric, the first.

        >>> str(Requirement.of_verdict("mean >= 1 under numeric; mean <= 0 under refused"))
        'mean >= 1'
        """
        return cls.parse(text.partition("; ")[0].partition(" under ")[0])

    def __str__(self) -> str:
        part = "" if self.part == "point" else f".{self.part}"
        return f"{self.name}{part} {self.operator} {self.bound:.12g}"

    @property
    def wants_high(self) -> bool:
        """Whether more is better, as far as the requirement says."""
        return self.operator in (">=", ">")

    def met_by(self, value: float) -> bool:
        """Whether a number meets the bound. One that is off by rounding alone is the bound itself.

        >>> Requirement.parse("mean > 0.3").met_by(0.1 + 0.2), Requirement.parse("mean <= 0.3").met_by(0.1 + 0.2)
        (False, True)
        """
        slack = 1e-12 * max(1.0, abs(self.bound))  # 0.1 + 0.2 >= 0.3 holds in decimals, which is how bounds are written
        # towards the bound: a value within rounding of it counts as equal, which meets >= and <= and fails > and <
        generous = slack if self.operator in (">=", "<") else -slack
        return bool(_OPERATORS[self.operator](value + generous, self.bound))

    def decide(self, estimate: Estimate) -> Decision:
        """The decision on an estimate; an undefined number meets no bound."""
        value: float | None = getattr(estimate, self.part)
        where = f" in {estimate.segment}" if estimate.segment is not None else ""
        met = value is not None and self.met_by(value)
        return Decision(passed=met, policy=str(self), reason=f"{self}{where}: {self.describe(estimate)}")

    def describe(self, estimate: Estimate) -> str:
        """The numbers of an estimate in one line, with the digits it takes to see on which side of the bound they are.

        >>> from kofn.core.types import Estimate
        >>> e = Estimate(aggregator="mean", point=.79996, low=.7, high=.9, level=.95, n=50, n_missing=2, method="bca")
        >>> Requirement.parse("mean >= 0.8").describe(e)
        '0.79996 [0.70000, 0.90000], 50 cases, 2 missing'
        """
        if estimate.point is None:
            return f"undefined: {'no cases' if not estimate.n_missing else f'{estimate.n_missing:,} missing, no other'}"
        value: float | None = getattr(estimate, self.part)
        digits = 3 if value is None else self.digits(value)
        text = f"{estimate.point:.{digits}f}"
        if estimate.low is not None and estimate.high is not None:
            text += f" [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"
        elif value is None:
            text += " without an interval"
        missing = f", {estimate.n_missing:,} missing" if estimate.n_missing else ""
        return f"{text}, {estimate.n:,} {'case' if estimate.n == 1 else 'cases'}{missing}"

    def digits(self, value: float) -> int:
        """The decimals it takes to see on which side of the bound a number is, at least 3."""
        met = self.met_by(value)
        return next((d for d in range(3, 13) if self.met_by(round(value, d)) == met), 13)


def _name_and_part(text: str) -> tuple[str, str]:
    """A name and which number of its estimate.

    >>> _name_and_part("any_pass.low"), _name_and_part("weighted_mean(weights=(.5, 1.))")
    (('any_pass', 'low'), ('weighted_mean(weights=(.5, 1.))', 'point'))
    """
    name, _, part = text.rpartition(".")
    return (name.strip(), part) if part in _ESTIMATE_PARTS else (text, "point")
