"""Every option of the API and the command line, declared once: a new option of any verb starts here.

A function takes the options of one of these classes as keywords; the verb of the same name offers them as `--name`.
Options without a `Keyword` are for Python alone.
"""

# without `from __future__ import annotations`: the annotations are read at run time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cache
from numbers import Real
from pathlib import Path
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, get_args, get_origin

from kofn import generate
from kofn.errors import InputError, UnknownName

if TYPE_CHECKING:
    from kofn.generate import Limits

Place = Path | str
Spec = str | Callable[..., Any]
Specs = Spec | Sequence[Spec]
Texts = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Keyword:
    """What the command line needs to know of an option, and how a value is brought to one form.

    The annotation beside it says the rest (where that is Any, `kind` and `many` are given here):

    kind      bool, int, float, str or Path
    many      several may be given; the value is a tuple
    pairs     NAME=VALUE, several; the value is a mapping
    either    a bool that is also None, where nothing is said: --NAME and --no-NAME
    low, high the least and the most; `above` and `below` are bounds that are themselves excluded
    """

    help: str
    metavar: str | None = None
    _: KW_ONLY
    kind: type = str
    default: Any = None
    short: str | None = None
    many: bool = False
    pairs: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    either: bool = False
    required: bool = False
    env: str | None = None

    @property
    def unset(self) -> Any:
        """The value where none is given."""
        if self.many or self.pairs:
            return () if self.many else {}
        return False if self.kind is bool and not self.either else self.default

    def annotated(self, annotation: Any) -> "Keyword":
        """This option with what the annotation says of it."""
        if annotation is Any:
            return self
        parts = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
        origins = [get_origin(part) for part in parts]
        kind = next((kind for kind in (bool, int, float, Path) if kind in parts), str)
        either = kind is bool and NoneType in parts
        return replace(self, kind=kind, many=Sequence in origins, pairs=Mapping in origins, either=either)

    def settle(self, name: str, value: Any) -> Any:
        """A value given in Python in the form that functions work with."""
        if self.many:
            alone = isinstance(value, (str, Path)) or not isinstance(value, Iterable) or callable(value)
            return (value,) if alone else tuple(value)
        if self.choices and value not in self.choices:
            raise UnknownName(name, str(value), list(self.choices))
        if self.kind is Path and isinstance(value, str):
            return Path(value)
        if self.pairs and not isinstance(value, Mapping):
            raise InputError(f"{name} is {value!r}: expected a mapping")
        if self.kind in (int, float) and not isinstance(value, Real) and value != "auto":  # as `part_size` may be
            raise InputError(f"{name} is {value!r}: expected a number")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and not self._admits(value):
            raise InputError(f"{name} is {value:g}: expected {self._range()}")
        return value

    @property
    def least(self) -> float | None:
        return self.low if self.above is None else self.above

    @property
    def most(self) -> float | None:
        return self.high if self.below is None else self.below

    def _admits(self, value: float) -> bool:
        least = (self.low is None or value >= self.low) and (self.above is None or value > self.above)
        return least and (self.high is None or value <= self.high) and (self.below is None or value < self.below)

    def _range(self) -> str:
        what = "a whole number" if self.kind is int else "a number"
        if self.least is not None and self.most is not None:
            words = ("from", "to") if self.below is None else ("between", "and")
            return f"{what} {words[0]} {self.least:g} {words[1]} {self.most:g}"
        return f"{what} {'from' if self.above is None else 'above'} {self.least:g}"


class OptionError(InputError):
    """Options that do not go together. The message names them as the command line does, in Python as keywords.

    >>> print(OptionError("--cost-per-case says nothing without --width: give it too"))
    cost_per_case says nothing without width: give it too
    """

    def __str__(self) -> str:
        import re

        return re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda m: m[1].replace("-", "_"), self.for_terminal)

    @property
    def for_terminal(self) -> str:
        return super().__str__()


Aggregate = Annotated[Specs, Keyword("Aggregator, such as any_pass or pass@5; repeatable.", "A", short="-a")]
Threshold = Annotated[float | None, Keyword("Minimum passing score (default: as graded, or 1.0).")]
TopK = Annotated[int | None, Keyword("Keep the first K candidates of each set.", "K", low=1)]
By = Annotated[Texts, Keyword("Also within each value of this field; repeatable.", "FIELD")]
Cluster = Annotated[str | None, Keyword("Resample groups of cases that belong together.", "FIELD")]
Weight = Annotated[str | None, Keyword("Weight of each case.", "FIELD")]
Interval = Annotated[
    str,
    Keyword("auto, bootstrap, expanded, bca, wilson, clopper_pearson, jeffreys, t or cluster.", "I", default="auto"),
]
Level = Annotated[float, Keyword("Level of the intervals.", default=0.95)]
Seed = Annotated[int, Keyword("Random seed.", default=0)]
SplitPart = Annotated[
    str | None, Keyword("Only design or test cases: design, test:0.3 (the share of design), test:0.3:SEED.", "PART")
]
Use = Annotated[str | None, Keyword("How outputs are used: any, vote, select, list or all.", "USE")]
Field = Annotated[Mapping[str, str], Keyword("A field's name in this file; repeatable.", "ROLE=NAME")]
Format = Annotated[
    str | None, Keyword("How to read the files (default: by their content; `kofn list importers`).", "F")
]
Where = Annotated[Mapping[str, str], Keyword("Only cases with this value; repeatable.", "FIELD=VALUE")]
AsRepeats = Annotated[bool, Keyword("The files are repeats of the same cases, matched by id or by place.")]
BatchIndex = Annotated[int | None, Keyword("A number for results.jsonl, such as the training step.", "N")]
AppendResults = Annotated[Place | None, Keyword("Append this run's line of results.jsonl to FILE too.", "FILE")]
Tag = Annotated[Texts, Keyword("A word to find the run by, in `kofn view`; repeatable.", "WORD")]


class Calls(TypedDict, total=False):
    """How models are called: limits, retries, budgets, prices."""

    concurrency: Annotated[int | None, Keyword("Calls at the same time, to each model.", low=1)]
    requests_per_second: Annotated[float | None, Keyword("Maximum requests per second, per model.", above=0)]
    tokens_per_minute: Annotated[float | None, Keyword("Maximum tokens per minute, per model.", above=0)]
    timeout: Annotated[float, Keyword("Seconds a call may take.", default=600.0, above=0)]
    retries: Annotated[int, Keyword("Retries of a call that failed.", low=0, default=6)]
    retry_errors: Annotated[bool, Keyword("Ask again what failed in an earlier start.")]
    max_cost: Annotated[float | None, Keyword("Stop when so many dollars are spent.", above=0)]
    max_tokens_total: Annotated[int | None, Keyword("Stop when so many tokens are used.", low=1)]
    max_time: Annotated[float | None, Keyword("Stop after so many seconds.", above=0)]
    cache: Annotated[bool, Keyword("Share replies of deterministic requests across runs.")]
    prices: Annotated[Place | None, Keyword("A YAML file of prices.")]


class ScoreKeywords(TypedDict, total=False):
    """Options of `kofn.score`.

    `engine` is a name, or an engine of `kofn.parallel`. `everything` keeps fields that no number needs. `on_part(done,
    total)` is told after each part of large Parquet files, `on_note(text)` what is left out of a task file.
    """

    as_repeats: AsRepeats
    format: Format
    where: Where
    extract: Annotated[Spec | None, Keyword("Extractor of answers, such as number, letter or pattern('x=(.*)').", "E")]
    metric: Annotated[Specs, Keyword("Metric against the reference; repeatable.", "M")]
    aggregate: Aggregate
    threshold: Threshold
    top_k: TopK
    by: By
    interval: Interval
    level: Level
    seed: Seed
    cluster: Cluster
    weight: Weight
    split: SplitPart
    use: Use
    field: Field
    workers: Annotated[
        int | None, Keyword("Call metrics of your own, and those that take long, on so many processes.", "N", low=1)
    ]
    engine: Annotated[Any, Keyword("Where: local or ray.", "E")]
    ray_address: Annotated[str | None, Keyword("The Ray cluster, with --engine ray.", "A")]
    part_size: Annotated[
        Any,
        Keyword(
            "Read Parquet in parts of about N candidates and keep none of them (default: "
            "1,000,000, from two million candidates on).",
            "N",
            kind=int,
            low=1,
        ),
    ]
    out: Annotated[Place | None, Keyword("Write a run directory, report.html in it.", "DIR")]
    task: Annotated[
        str | None,
        Keyword(
            "What is evaluated, in the run directory (default: the file's name); or a task "
            "file, kofn's or lm-eval's, whose extractor, metrics and aggregators are taken.",
            "TASK",
        ),
    ]
    verdict: Annotated[
        str | None,
        Keyword(
            "The aggregator that says whether a case passes, such as majority or 'mean >= 0.8' (default: the first).",
            "A",
        ),
    ]
    group: Annotated[str | None, Keyword("The field whose values are the report's groups of cases.", "FIELD")]
    group_type: Annotated[
        Mapping[str, str], Keyword("Core (default), Functionality, Regression or Error; repeatable.", "GROUP=TYPE")
    ]
    group_weight: Annotated[Mapping[str, float], Keyword("Weight of a group's score; repeatable.", "GROUP=W")]
    metric_weight: Annotated[Mapping[str, float], Keyword("Weight of a metric; repeatable.", "METRIC=W")]
    batch_index: BatchIndex
    append_results: AppendResults
    tag: Tag
    policy: Annotated[str, Keyword("When the whole run passes.", "P", default="core-cases")]
    n_resamples: int
    everything: bool
    fields: Mapping[str, str]
    on_part: Callable[[int, int], None] | None
    on_note: Callable[[str], None] | None


class CompareKeywords(TypedDict, total=False):
    """Options of `kofn.compare`."""

    aggregate: Annotated[
        Texts,
        Keyword(
            "Numbers to compare, such as any_pass or pass@5; repeatable (default: all that any of them shows).",
            "A",
            short="-a",
        ),
    ]
    metric: Annotated[Texts, Keyword("Of these metrics; repeatable (default: those all have).", "M")]
    by: By
    split: SplitPart
    top_k: TopK
    all_pairs: Annotated[bool, Keyword("Compare every two, not each with the first.")]
    verdict: Annotated[str | None, Keyword("What says whether a case passes, such as majority or 'mean >= 0.8'.", "V")]
    use: Annotated[
        str | None,
        Keyword(
            "Intended use, whose number is the headline: any, vote, select or all (default: as the runs declare).",
            "USE",
        ),
    ]
    extractors: Annotated[Texts, Keyword("Grade the same outputs with each of these extractors.", "E...")]
    metrics: Annotated[Texts, Keyword("Grade the same outputs with each of these metrics.", "M...")]
    selectors: Annotated[
        Texts,
        Keyword(
            "Pick from the same candidates by each of these: a YAML file, a column, a "
            "metric, vote, length, first, random, module:function.",
            "S...",
        ),
    ]
    evaluator: Annotated[str | None, Keyword("The metric that grades what selectors pick (default: the first).", "M")]
    extract: Annotated[str | None, Keyword("Grade again, with this extractor of answers.", "E")]
    threshold: Threshold
    cluster: Cluster
    weight: Weight
    field: Field
    alpha: Annotated[float, Keyword("A difference is significant with p below this.", default=0.05)]
    level: Level
    seed: Seed
    fields: Mapping[str, str]


class CurveKeywords(TypedDict, total=False):
    """Options of `kofn.curve`."""

    metric: Annotated[str | None, Keyword("The metric whose passes count (default: the first).", "M")]
    selector: Annotated[
        str | None,
        Keyword(
            "What picks one of k: a column of scores, vote, length, first, random, "
            "module:function, or a YAML file (default: the only column of scores).",
            "S",
        ),
    ]
    measure: Annotated[
        str | None,
        Keyword("Whose gain counts (default: as the run is used, else any).", choices=("any", "selected", "majority")),
    ]
    min_gain_per_dollar: Annotated[float | None, Keyword("Minimum gain per dollar of a further candidate.", "X")]
    max_latency: Annotated[float | None, Keyword("All n answers within this time.", "SECONDS")]
    sequential: Annotated[bool, Keyword("Candidates are asked one after the other, not side by side.")]
    budget: Annotated[float | None, Keyword("Most that the candidates of one case may cost.", "DOLLARS")]
    cost_per_candidate: Annotated[float | None, Keyword("Where the outputs carry no cost.", "DOLLARS")]
    extend: Annotated[int | None, Keyword("Extrapolate to K candidates (beta-binomial).", "K", low=1)]
    labels: Annotated[
        Any, Keyword("Verdicts of people and of the judge on candidates: adds the corrected curve.", "FILE", kind=Path)
    ]
    by: By
    split: SplitPart
    interval: Interval
    level: Level
    seed: Seed
    threshold: Threshold
    use: Annotated[
        str | None, Keyword("How outputs are used: any, vote, select, list or all; says which measure counts.", "USE")
    ]


class CheckKeywords(TypedDict, total=False):
    """Options of `kofn.check`."""

    policy: Annotated[str | None, Keyword("A pass policy; the run's own when nothing else is asked for.", "P")]
    require: Annotated[
        Texts, Keyword("Such as 'any_pass >= 0.8', or on an interval's end 'any_pass.low >= 75%'; repeatable.", "EXPR")
    ]
    each: Annotated[Texts, Keyword("Requirements hold in every segment too; repeatable.", "FIELD")]
    baseline: Annotated[Any, Keyword("No significant drop against this run.", "RUN", kind=Path)]
    alpha: Annotated[float, Keyword("A drop is significant with p below this.", default=0.05)]
    max_cost: Annotated[float | None, Keyword("Most that all candidates together may cost.", "X")]
    min_passes: Annotated[str | None, Keyword("Every Core case has M passing candidates (of N graded).", "M[/N]")]
    strict: Annotated[bool, Keyword("No number is picked and graded by the same judge or score.")]
    fail_on: Annotated[Texts, Keyword("No warning with this code; repeatable.", "CODE")]
    allow_missing: Annotated[bool, Keyword("Candidates not graded and cases not verified may be.")]
    junit: Annotated[Place | None, Keyword("Write JUnit XML.", "FILE")]
    summary: Annotated[Place | None, Keyword("Append a summary in Markdown.", "FILE", env="GITHUB_STEP_SUMMARY")]


class PlanKeywords(TypedDict, total=False):
    """Options of `kofn.plan`."""

    width: Annotated[float | None, Keyword("Full width of the interval that is wanted.", "W")]
    difference: Annotated[float | None, Keyword("The difference between two systems that is to be found.", "D")]
    power: Annotated[float, Keyword("Probability of finding it.", default=0.8)]
    level: Annotated[float, Keyword("Level of the interval.", default=0.95)]
    against: Annotated[
        Any, Keyword("A pilot of the other system: the difference is paired by case.", "RUN|FILE", kind=Path)
    ]
    correlation: Annotated[
        float,
        Keyword("Without --against: how alike both systems find the cases hard (0 is cautious).", "R", default=0.0),
    ]
    metric: Annotated[str | None, Keyword("The metric of the pilot (default: the first).", "M")]
    p: Annotated[float | None, Keyword("Instead of a pilot: the share that is expected.", "P")]
    between: Annotated[
        float | None,
        Keyword("Instead of a pilot: variance between cases (with --difference: of the expected differences).", "V"),
    ]
    within: Annotated[float | None, Keyword("And within a case, from repeat to repeat, of one system.", "V")]
    cost_per_candidate: Annotated[float | None, Keyword("Default: the pilot's mean.", "DOLLARS")]
    cost_per_case: Annotated[float | None, Keyword("Such as writing it.", "DOLLARS")]
    cost_per_label: Annotated[float | None, Keyword("A person's verdict.", "DOLLARS")]
    labels: Annotated[
        Any, Keyword("Verdicts of people and of the judge: plan the corrected rate of a judge.", "FILE", kind=Path)
    ]
    max_cases: Annotated[int | None, Keyword("There are no more cases than this.", "N", low=2)]


class TrendKeywords(TypedDict, total=False):
    """Options of `kofn.trend`."""

    task: Annotated[str | None, Keyword("Only the runs of this task.", "NAME")]
    aggregate: Annotated[
        Texts,
        Keyword(
            "The number to follow: a stored aggregator, pass_rate or score; repeatable "
            "(default: the verdict's where all runs have the same, else pass_rate).",
            "A",
            short="-a",
        ),
    ]
    metric: Annotated[str | None, Keyword("The metric of the aggregator (default: a run's first).", "M")]
    alpha: Annotated[float, Keyword("A change is significant with p below this.", default=0.05)]
    last: Annotated[int | None, Keyword("Only the newest N runs of each task.", "N", low=1)]


class JudgeKeywords(Calls, total=False):
    """Options of `kofn.judge`; `progress` shows it, on a terminal."""

    rubric: Annotated[
        Any,
        Keyword("correctness, helpfulness, faithfulness, preference, or a YAML file of your own.", "R", required=True),
    ]
    model: Annotated[
        Any, Keyword("The judge, as in kofn run; several are a panel.", "M", short="-m", many=True, required=True)
    ]
    repeats: Annotated[int, Keyword("Verdicts per candidate.", short="-n", default=1, low=1)]
    panel: Annotated[str, Keyword("How several judges become one score.", choices=("mean", "vote"), default="mean")]
    choose: Annotated[
        bool,
        Keyword(
            "No reply: the verdict is the likeliest of all there are. For small models; "
            "needs log-likelihoods (smollm2, gguf:, hf:)."
        ),
    ]
    against: Annotated[Any, Keyword("With a pairwise rubric: the other system.", "RUN|FILE", kind=Path)]
    replace: Annotated[bool, Keyword("Write over a metric of this name that another judge gave.")]
    name: Annotated[str | None, Keyword("The metric's name (default: the rubric's).", "NAME")]
    temperature: Annotated[float | None, Keyword("Of the judge (default: the rubric's).", short="-t", low=0, high=5)]
    max_tokens: Annotated[int | None, Keyword("Longest verdict (default: the rubric's).", low=1)]
    out: Annotated[Place | None, Keyword("For a FILE: the run directory (default: runs/FILE-RUBRIC).", "DIR")]
    aggregate: Aggregate
    by: By
    top_k: Annotated[int | None, Keyword("For a FILE: the first K candidates of each case.", "K", low=1)]
    split: Annotated[
        str | None, Keyword("For a FILE: design or test cases, as design, test:0.3 or test:0.3:SEED.", "PART")
    ]
    use: Use
    field: Field
    seed: Seed
    progress: bool
    fields: Mapping[str, str]


class CalibrateKeywords(TypedDict, total=False):
    """Options of `kofn.calibrate`."""

    apply: Annotated[
        Any,
        Keyword(
            "Correct the judge's rate there: a run, a file of outputs, or lines {id, judge}.", "RUN|FILE", kind=Path
        ),
    ]
    metric: Annotated[
        str | None,
        Keyword("Which metric of RUN has the judge's verdicts; the one called judge, else the first.", "NAME"),
    ]
    aggregate: Annotated[str | None, Keyword("What makes a set of candidates pass; any_pass unless given.", "NAME")]
    threshold: Annotated[float | None, Keyword("Scores of at least X pass.", "X")]
    by: Annotated[
        Texts, Keyword("Also in each segment; repeatable. The labels' own column segment unless given.", "FIELD")
    ]
    known_rates: Annotated[Any, Keyword("Sensitivity and specificity, taken as exact.", "S,T")]
    method: Annotated[
        str, Keyword("Of the corrected interval: auto, bootstrap or lang_reiczigel.", "M", default="auto")
    ]
    level: Level
    seed: Seed
    selected: Annotated[bool, Keyword("Sample what the selector picks; with labels, correct the rate of its picks.")]
    by_selector: Annotated[str | None, Keyword("Which selector.", "NAME")]
    save: Annotated[bool, Keyword("Keep the corrected rate in the run of --apply: its reports show both.")]


class RunKeywords(Calls, total=False):
    """Options of `kofn.run`; what is left out is as the task says.

    `data` may be rows, and `model` and `answer_model` models or callables; `progress` shows it, on a terminal.
    """

    model: Annotated[
        Any,
        Keyword(
            "Model to evaluate, such as smollm2 (default), openai:NAME, openai:NAME@URL, "
            "anthropic:NAME, hf:FOLDER, gguf:FILE, replay:FILE; `kofn list models`.",
            "M",
            short="-m",
        ),
    ]
    answer_model: Annotated[Any, Keyword("The critic, which answers after the actor has reasoned.", "M")]
    repeats: Annotated[int | None, Keyword("Candidates per case (default: the task's).", short="-n", low=1)]
    temperature: Annotated[float | None, Keyword("Of every stage that is not fixed at 0.", short="-t", low=0, high=5)]
    top_p: Annotated[float | None, Keyword("Nucleus sampling of the first stage.", high=1, above=0)]
    max_tokens: Annotated[int | None, Keyword("Longest output of the first stage.", low=1)]
    stop: Annotated[Texts, Keyword("Where an output ends; repeatable.", "TEXT")]
    chat: Annotated[bool | None, Keyword("Ask in messages, or as text to continue.")]
    two_stage: Annotated[bool, Keyword("Reason first, then answer from the reasoning.")]
    markovian: Annotated[bool | None, Keyword("Whether the answer is asked without the question.")]
    actor_reward_weight: Annotated[float | None, Keyword("0: the critic answers; above: the actor.", low=0)]
    compare_markovian: Annotated[bool, Keyword("Answer each reasoning without and with the question.")]
    adaptive: Annotated[bool, Keyword("Stop a case when its leading answer is safe.")]
    max_repeats: Annotated[
        int | None, Keyword("With --adaptive: the most candidates per case; --repeats is then the fewest.", low=1)
    ]
    confidence: Annotated[float, Keyword("How safe, with --adaptive.", default=0.95, above=0.5, below=1)]
    data: Annotated[Any, Keyword("Another file or folder than the task's.", kind=Path)]
    limit: Annotated[int | None, Keyword("The first N cases.", low=1)]
    samples: Annotated[Any, Keyword("Only these cases.", "ID,ID,...")]
    sample: Annotated[
        int | None, Keyword("N cases, drawn with the seed, as many of each group as it has by share.", low=1)
    ]
    extract: Annotated[Any, Keyword("Extractor of answers; llm:MODEL lets a model read them too.", "E")]
    metric: Annotated[Specs, Keyword("Metric; repeatable.", "M")]
    aggregate: Aggregate
    by: By
    threshold: Threshold
    verdict: Annotated[str | None, Keyword("The aggregator that says whether a case passes.", "A")]
    policy: Annotated[str | None, Keyword("When the whole run passes.", "P")]
    use: Use
    interval: Interval
    level: Level
    out: Annotated[Place | None, Keyword("The run directory (default: runs/TASK-MODEL).", "DIR")]
    seed: Seed
    reproducible: Annotated[bool, Keyword("Bit for bit the same candidates again; slower.")]
    batch_size: Annotated[int | None, Keyword("Requests computed together, for hf models.", low=1)]
    device: Annotated[str | None, Keyword("cpu, cuda or mps, for hf models.")]
    batch_index: BatchIndex
    append_results: AppendResults
    tag: Tag
    progress: bool
    llm_extract: Any
    top_k: int | None
    cluster: str | None
    weight: str | None
    split: Any
    group: str | None
    types: Mapping[str, Any]
    weights: Mapping[str, float]
    metric_weights: Mapping[str, float]
    n_resamples: int
    engine: Any
    metrics: Specs
    tags: Texts


class VerifyKeywords(TypedDict, total=False):
    """Options of `kofn.verify`.

    `progress` is a `kofn.problems.ExecutionCount`; `on_note(text)` is told where an interrupted
    verification is kept.
    """

    checkpoint: Annotated[str, Keyword("A name, a number from 1, or all.", "C", default="last")]
    policy: Annotated[str, Keyword("When a submission passes.", "P", default="core-cases")]
    group: Annotated[Texts, Keyword("Only this group; repeatable.", "G")]
    case: Annotated[Texts, Keyword("Only this case, ID or GROUP/ID; repeatable.", "ID")]
    repeat: Annotated[int, Keyword("Run every case so often; flaky ones are named.", default=1, low=1)]
    aggregate: Annotated[Texts, Keyword("Over the set of submissions; repeatable.", "A", short="-a")]
    timeout: Annotated[float | None, Keyword("Seconds a program of a data set may take.", above=0)]
    workers: Annotated[int | None, Keyword("Programs at the same time (default: the cores).", "N", low=1)]
    engine: Annotated[str, Keyword("local or ray.", "E", default="local")]
    ray_address: Annotated[str | None, Keyword("A Ray cluster; without it one is started here.", "A")]
    shared: Annotated[str | None, Keyword("A path that all nodes see, for what is sent to them.", "URL")]
    python: Annotated[str | None, Keyword("What `python` is to a submission (default: the one kofn runs on).", "P")]
    show: Annotated[Texts, Keyword("Show this path to programs, read-only; repeatable.", "PATH")]
    unsafe: Annotated[bool, Keyword("Run programs without a sandbox, with nothing but limits.")]
    out: Annotated[Place | None, Keyword("Where runs go (default: runs/verify-PROBLEM).", "DIR")]
    tag: Tag
    progress: Any
    on_note: Callable[[str], None] | None


class AuditKeywords(Calls, total=False):
    """Options of `kofn.api.audit`."""

    extract: Annotated[
        Texts,
        Keyword(
            "An extractor to compare; repeatable (default: the one that suits the outputs, and its relatives).", "E"
        ),
    ]
    model: Annotated[Any, Keyword("A model reads every output too, such as smollm2 or openai:MODEL.", "M")]
    metric: Annotated[str | None, Keyword("What compares answers with references (default: what suits them).", "M")]
    limit: Annotated[int | None, Keyword("Only N cases, drawn by --seed.", "N", low=1)]
    seed: Seed
    format: Format
    field: Field
    store: Annotated[Place | None, Keyword("Keep the model's replies, to go on.", "DIR")]
    fields: Mapping[str, str]


class ExportKeywords(TypedDict, total=False):
    """Options of `kofn export`."""

    extract: Annotated[str | None, Keyword("Extractor of answers, where files are read.", "E")]
    metric: Annotated[Specs, Keyword("Metric, where files are read; repeatable.", "M")]
    as_repeats: AsRepeats
    format: Format
    where: Where
    field: Field


_ALIASES = {"fields": "field", "metrics": "metric", "tags": "tag"}  # earlier names of the Python API


@cache
def options_of(kind: type) -> dict[str, Keyword | None]:
    """Name -> what is known of each option of a class; None for those that are for Python alone."""
    # what all verbs that call models share comes last
    shared = kind.__annotations__.keys() & Calls.__annotations__.keys()
    ordered = sorted(kind.__annotations__.items(), key=lambda item: item[0] in shared)
    return {
        name: hint.__metadata__[0].annotated(hint.__origin__) if hasattr(hint, "__metadata__") else None
        for name, hint in ordered
    }


def settle(kind: type, options: Mapping[str, Any]) -> SimpleNamespace:
    """The options as attributes, each in one form; what is not given has its default, and `given` names the others.

    >>> settle(CurveKeywords, {"by": "topic"}).by
    ('topic',)
    >>> settle(CurveKeywords, {"bye": "topic"})
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown option 'bye': did you mean by?
    """
    known = options_of(kind)
    values = {name: None if option is None else option.unset for name, option in known.items()}
    given = set()
    for name, value in options.items():
        if name not in known:
            raise UnknownName("option", name, [n for n in known if n not in _ALIASES or known[n] is not None])
        if value is None:
            continue
        own = _ALIASES.get(name, name) if known[name] is None else name
        option = known[own]
        values[own] = value if option is None else option.settle(own, value)
        given.add(own)
    return SimpleNamespace(**values, given=frozenset(given))


def call_limits(asked: SimpleNamespace) -> "Limits":
    """The limits of calls among the options."""
    return generate.Limits(**{field.name: getattr(asked, field.name) for field in fields(generate.Limits)})
