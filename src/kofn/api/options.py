"""Every option of the API and of the command line: its name, type, default and help, declared once.

A function takes the options of one of these classes as keywords; the verb of the same name offers them as `--name`.
Options without a `Keyword` are for Python alone.
"""

# without `from __future__ import annotations`: the annotations are read at run time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, TypedDict

from kofn.errors import InputError, UnknownName

Place = Path | str
Spec = str | Callable[..., Any]
Specs = Spec | Sequence[Spec]
Texts = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Keyword:
    """What the command line needs to know of an option, and how a value is brought to one form.

    kind      bool, int, float, str or Path
    many      several may be given; the value is a tuple
    pairs     NAME=VALUE, several; the value is a mapping
    low, high the least and the most; `above` and `below` exclude them
    either    a bool that is also None, where nothing is said: --NAME and --no-NAME
    """

    help: str
    _: KW_ONLY
    kind: type = str
    default: Any = None
    metavar: str | None = None
    short: str | None = None
    many: bool = False
    pairs: bool = False
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    either: bool = False
    required: bool = False
    env: str | None = None

    def settle(self, name: str, value: Any) -> Any:
        """A value given in Python in the form that functions work with."""
        if self.many:
            alone = isinstance(value, (str, Path)) or not isinstance(value, Iterable) or callable(value)
            return (value,) if alone else tuple(value)
        if self.choices and value not in self.choices:
            raise UnknownName(name, str(value), list(self.choices))
        if self.kind is Path and isinstance(value, str):
            return Path(value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low = self.low is not None and (value < self.low or (self.above and value == self.low))
            high = self.high is not None and (value > self.high or (self.below and value == self.high))
            if low or high:
                raise InputError(f"{name} is {value:g}: expected {self._range()}")
        return value

    def _range(self) -> str:
        what = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            words = ("between", "and") if self.below else ("from", "to")
            return f"{what} {words[0]} {self.low:g} {words[1]} {self.high:g}"
        return f"{what} above {self.low:g}" if self.above else f"{what} from {self.low:g}"


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


_COUNT: dict[str, Any] = {"kind": int, "low": 1}
_ABOVE: dict[str, Any] = {"kind": float, "low": 0, "above": True}
_FILE: dict[str, Any] = {"kind": Path, "metavar": "FILE"}

Extract = Annotated[
    Spec | None, Keyword("Extractor of answers, such as number, letter or pattern('x=(.*)').", metavar="E")
]
Metrics = Annotated[Specs, Keyword("Metric against the reference; repeatable.", metavar="M", many=True)]
Metric = Annotated[str | None, Keyword("The metric whose scores count (default: the first).", metavar="M")]
Aggregate = Annotated[
    Specs, Keyword("Aggregator, such as any_pass or pass@5; repeatable.", metavar="A", short="-a", many=True)
]
Threshold = Annotated[float | None, Keyword("Minimum passing score (default: as graded, or 1.0).", kind=float)]
TopK = Annotated[int | None, Keyword("Keep the first K candidates of each set.", metavar="K", **_COUNT)]
By = Annotated[Texts, Keyword("Also within each value of this field; repeatable.", metavar="FIELD", many=True)]
Cluster = Annotated[str | None, Keyword("Resample groups of cases that belong together.", metavar="FIELD")]
Weight = Annotated[str | None, Keyword("Weight of each case.", metavar="FIELD")]
Interval = Annotated[
    str,
    Keyword(
        "auto, bootstrap, expanded, bca, wilson, clopper_pearson, jeffreys, t or cluster.",
        default="auto",
        metavar="I",
    ),
]
Level = Annotated[float, Keyword("Level of the intervals.", kind=float, default=0.95)]
Alpha = Annotated[float, Keyword("A difference is significant with p below this.", kind=float, default=0.05)]
Seed = Annotated[int, Keyword("Random seed.", kind=int, default=0)]
SplitPart = Annotated[
    str | None,
    Keyword("Only design or test cases: design, test:0.3 (the share of design), test:0.3:SEED.", metavar="PART"),
]
Use = Annotated[str | None, Keyword("How outputs are used: any, vote, select, list or all.", metavar="USE")]
Field = Annotated[
    Mapping[str, str], Keyword("A field's name in this file; repeatable.", metavar="ROLE=NAME", pairs=True)
]
Format = Annotated[
    str | None, Keyword("How to read the files (default: by their content; `kofn list importers`).", metavar="F")
]
Where = Annotated[
    Mapping[str, str], Keyword("Only cases with this value; repeatable.", metavar="FIELD=VALUE", pairs=True)
]
AsRepeats = Annotated[bool, Keyword("The files are repeats of the same cases, matched by id or by place.", kind=bool)]
Verdict = Annotated[
    str | None,
    Keyword(
        "The aggregator that says whether a case passes, such as majority or 'mean >= 0.8' (default: the first).",
        metavar="A",
    ),
]
Policy = Annotated[str, Keyword("When the whole run passes.", default="core-cases", metavar="P")]
BatchIndex = Annotated[
    int | None, Keyword("A number for results.jsonl, such as the training step.", kind=int, metavar="N")
]
AppendResults = Annotated[Place | None, Keyword("Append this run's line of results.jsonl to FILE too.", **_FILE)]
Tag = Annotated[Texts, Keyword("A word to find the run by, in `kofn view`; repeatable.", metavar="WORD", many=True)]
Engine = Annotated[Any, Keyword("Where: local or ray.", metavar="E")]
RayAddress = Annotated[str | None, Keyword("The Ray cluster, with --engine ray.", metavar="A")]
Labels = Annotated[Any, Keyword("Verdicts of people and of the judge on candidates.", **_FILE)]


class Calls(TypedDict, total=False):
    """How models are called: limits, retries, budgets, prices."""

    concurrency: Annotated[int | None, Keyword("Calls at the same time, to each model.", **_COUNT)]
    requests_per_second: Annotated[float | None, Keyword("Maximum requests per second, per model.", **_ABOVE)]
    tokens_per_minute: Annotated[float | None, Keyword("Maximum tokens per minute, per model.", **_ABOVE)]
    timeout: Annotated[float, Keyword("Seconds a call may take.", default=600.0, **_ABOVE)]
    retries: Annotated[int, Keyword("Retries of a call that failed.", kind=int, low=0, default=6)]
    retry_errors: Annotated[bool, Keyword("Ask again what failed in an earlier start.", kind=bool)]
    max_cost: Annotated[float | None, Keyword("Stop when so many dollars are spent.", **_ABOVE)]
    max_tokens_total: Annotated[int | None, Keyword("Stop when so many tokens are used.", **_COUNT)]
    max_time: Annotated[float | None, Keyword("Stop after so many seconds.", **_ABOVE)]
    cache: Annotated[bool, Keyword("Share replies of deterministic requests across runs.", kind=bool)]
    prices: Annotated[Place | None, Keyword("A YAML file of prices.", kind=Path)]


LIMITS = (
    "concurrency",
    "requests_per_second",
    "tokens_per_minute",
    "timeout",
    "retries",
    "max_cost",
    "max_tokens_total",
    "max_time",
)  # fmt: skip - those of Calls that are `kofn.generate.Limits`


class ScoreKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.score`.

    `engine` is a name, or an engine of `kofn.parallel`. `everything` keeps fields that no number needs. `on_part(done,
    total)` is told after each part of large Parquet files, `on_note(text)` what is left out of a task file.
    """

    as_repeats: AsRepeats
    format: Format
    where: Where
    extract: Extract
    metric: Metrics
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
        int | None,
        Keyword("Call metrics of your own, and those that take long, on so many processes.", metavar="N", **_COUNT),
    ]
    engine: Engine
    ray_address: RayAddress
    part_size: Annotated[
        Any,
        Keyword(
            "Read Parquet in parts of about N candidates and keep none of them (default: "
            "1,000,000, from two million candidates on).",
            metavar="N",
            **_COUNT,
        ),
    ]
    out: Annotated[Place | None, Keyword("Write a run directory, report.html in it.", kind=Path, metavar="DIR")]
    task: Annotated[
        str | None,
        Keyword(
            "What is evaluated, in the run directory (default: the file's name); or a task "
            "file, kofn's or lm-eval's, whose extractor, metrics and aggregators are taken.",
            metavar="TASK",
        ),
    ]
    verdict: Verdict
    group: Annotated[str | None, Keyword("The field whose values are the report's groups of cases.", metavar="FIELD")]
    group_type: Annotated[
        Mapping[str, str],
        Keyword("Core (default), Functionality, Regression or Error; repeatable.", metavar="GROUP=TYPE", pairs=True),
    ]
    group_weight: Annotated[
        Mapping[str, float], Keyword("Weight of a group's score; repeatable.", metavar="GROUP=W", pairs=True)
    ]
    metric_weight: Annotated[
        Mapping[str, float], Keyword("Weight of a metric; repeatable.", metavar="METRIC=W", pairs=True)
    ]
    batch_index: BatchIndex
    append_results: AppendResults
    tag: Tag
    policy: Policy
    n_resamples: int
    everything: bool
    fields: Mapping[str, str]
    on_part: Callable[[int, int], None] | None
    on_note: Callable[[str], None] | None


class CompareKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.compare`."""

    aggregate: Annotated[
        Texts,
        Keyword(
            "The numbers to compare, such as any_pass or pass@5; repeatable (default: all that both show).",
            metavar="A",
            short="-a",
            many=True,
        ),
    ]
    metric: Annotated[Texts, Keyword("Of these metrics; repeatable (default: those all have).", metavar="M", many=True)]
    by: By
    split: SplitPart
    top_k: TopK
    all_pairs: Annotated[bool, Keyword("Compare every two, not each with the first.", kind=bool)]
    verdict: Annotated[
        str | None, Keyword("What says whether a case passes, such as majority or 'mean >= 0.8'.", metavar="V")
    ]
    extractors: Annotated[
        Texts, Keyword("Grade the same outputs with each of these extractors.", metavar="E...", many=True)
    ]
    metrics: Annotated[Texts, Keyword("Grade the same outputs with each of these metrics.", metavar="M...", many=True)]
    selectors: Annotated[
        Texts,
        Keyword(
            "Pick from the same candidates by each of these: a YAML file, a column, a "
            "metric, vote, length, first, random, module:function.",
            metavar="S...",
            many=True,
        ),
    ]
    evaluator: Annotated[
        str | None, Keyword("The metric that grades what selectors pick (default: the first).", metavar="M")
    ]
    extract: Annotated[str | None, Keyword("Grade again, with this extractor of answers.", metavar="E")]
    threshold: Threshold
    cluster: Cluster
    weight: Weight
    field: Field
    alpha: Alpha
    level: Level
    seed: Seed
    fields: Mapping[str, str]


class CurveKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.curve`."""

    metric: Annotated[str | None, Keyword("The metric whose passes count (default: the first).", metavar="M")]
    selector: Annotated[
        str | None,
        Keyword(
            "What picks one of k: a column of scores, vote, length, first, random, "
            "module:function, or a YAML file (default: the only column of scores).",
            metavar="S",
        ),
    ]
    measure: Annotated[
        str | None,
        Keyword("Whose gain counts (default: as the run is used, else any).", choices=("any", "selected", "majority")),
    ]
    min_gain_per_dollar: Annotated[
        float | None, Keyword("Minimum gain per dollar of a further candidate.", kind=float, metavar="X")
    ]
    max_latency: Annotated[float | None, Keyword("All n answers within this time.", kind=float, metavar="SECONDS")]
    sequential: Annotated[bool, Keyword("Candidates are asked one after the other, not side by side.", kind=bool)]
    budget: Annotated[
        float | None, Keyword("Most that the candidates of one case may cost.", kind=float, metavar="DOLLARS")
    ]
    cost_per_candidate: Annotated[
        float | None, Keyword("Where the outputs carry no cost.", kind=float, metavar="DOLLARS")
    ]
    extend: Annotated[int | None, Keyword("Extrapolate to K candidates (beta-binomial).", metavar="K", **_COUNT)]
    labels: Annotated[
        Any, Keyword("Verdicts of people and of the judge on candidates: adds the corrected curve.", **_FILE)
    ]
    by: By
    split: SplitPart
    interval: Interval
    level: Level
    seed: Seed
    threshold: Threshold
    use: Annotated[
        str | None,
        Keyword("How outputs are used: any, vote, select, list or all; says which measure counts.", metavar="USE"),
    ]


class CheckKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.check`."""

    policy: Annotated[str | None, Keyword("A pass policy; the run's own when nothing else is asked for.", metavar="P")]
    require: Annotated[
        Texts,
        Keyword(
            "Such as 'any_pass >= 0.8', or on an interval's end 'any_pass.low >= 75%'; repeatable.",
            metavar="EXPR",
            many=True,
        ),
    ]
    each: Annotated[Texts, Keyword("Requirements hold in every segment too; repeatable.", metavar="FIELD", many=True)]
    baseline: Annotated[Any, Keyword("No significant drop against this run.", kind=Path, metavar="RUN")]
    alpha: Annotated[float, Keyword("A drop is significant with p below this.", kind=float, default=0.05)]
    max_cost: Annotated[float | None, Keyword("Most that all candidates together may cost.", kind=float, metavar="X")]
    min_passes: Annotated[
        str | None, Keyword("Every Core case has M passing candidates (of N graded).", metavar="M[/N]")
    ]
    strict: Annotated[bool, Keyword("No number is picked and graded by the same judge or score.", kind=bool)]
    fail_on: Annotated[Texts, Keyword("No warning with this code; repeatable.", metavar="CODE", many=True)]
    allow_missing: Annotated[bool, Keyword("Candidates not graded and cases not verified may be.", kind=bool)]
    junit: Annotated[Place | None, Keyword("Write JUnit XML.", **_FILE)]
    summary: Annotated[Place | None, Keyword("Append a summary in Markdown.", env="GITHUB_STEP_SUMMARY", **_FILE)]


class PlanKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.plan`."""

    width: Annotated[float | None, Keyword("Full width of the interval that is wanted.", kind=float, metavar="W")]
    difference: Annotated[
        float | None, Keyword("The difference between two systems that is to be found.", kind=float, metavar="D")
    ]
    power: Annotated[float, Keyword("Probability of finding it.", kind=float, default=0.8)]
    level: Annotated[float, Keyword("Level of the interval.", kind=float, default=0.95)]
    against: Annotated[
        Any, Keyword("A pilot of the other system: the difference is paired by case.", kind=Path, metavar="RUN|FILE")
    ]
    correlation: Annotated[
        float,
        Keyword(
            "Without --against: how alike both systems find the cases hard (0 is cautious).",
            kind=float,
            default=0.0,
            metavar="R",
        ),
    ]
    metric: Annotated[str | None, Keyword("The metric of the pilot (default: the first).", metavar="M")]
    p: Annotated[float | None, Keyword("Instead of a pilot: the share that is expected.", kind=float, metavar="P")]
    between: Annotated[
        float | None,
        Keyword(
            "Instead of a pilot: variance between cases (with --difference: of the expected differences).",
            kind=float,
            metavar="V",
        ),
    ]
    within: Annotated[
        float | None, Keyword("And within a case, from repeat to repeat, of one system.", kind=float, metavar="V")
    ]
    cost_per_candidate: Annotated[float | None, Keyword("Default: the pilot's mean.", kind=float, metavar="DOLLARS")]
    cost_per_case: Annotated[float | None, Keyword("Such as writing it.", kind=float, metavar="DOLLARS")]
    cost_per_label: Annotated[float | None, Keyword("A person's verdict.", kind=float, metavar="DOLLARS")]
    labels: Annotated[Any, Keyword("Verdicts of people and of the judge: plan the corrected rate of a judge.", **_FILE)]
    max_cases: Annotated[int | None, Keyword("There are no more cases than this.", kind=int, low=2, metavar="N")]


class TrendKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.trend`."""

    task: Annotated[str | None, Keyword("Only the runs of this task.", metavar="NAME")]
    aggregate: Annotated[
        Texts,
        Keyword(
            "The number to follow: a stored aggregator, pass_rate or score; repeatable "
            "(default: the verdict's where all runs have the same, else pass_rate).",
            metavar="A",
            short="-a",
            many=True,
        ),
    ]
    metric: Annotated[str | None, Keyword("The metric of the aggregator (default: a run's first).", metavar="M")]
    alpha: Annotated[float, Keyword("A change is significant with p below this.", kind=float, default=0.05)]
    last: Annotated[int | None, Keyword("Only the newest N runs of each task.", metavar="N", **_COUNT)]


class JudgeKeywords(Calls, total=False):
    """GradingConfig of `kofn.judge`; `progress` shows it, on a terminal."""

    rubric: Annotated[
        Any,
        Keyword(
            "correctness, helpfulness, faithfulness, preference, or a YAML file of your own.",
            metavar="R",
            required=True,
        ),
    ]
    model: Annotated[
        Any,
        Keyword("The judge, as in kofn run; several are a panel.", metavar="M", short="-m", many=True, required=True),
    ]
    repeats: Annotated[int, Keyword("Verdicts per candidate.", short="-n", default=1, **_COUNT)]
    panel: Annotated[str, Keyword("How several judges become one score.", choices=("mean", "vote"), default="mean")]
    choose: Annotated[
        bool,
        Keyword(
            "No reply: the verdict is the likeliest of all there are. For small models; "
            "needs log-likelihoods (smollm2, gguf:, hf:).",
            kind=bool,
        ),
    ]
    against: Annotated[Any, Keyword("With a pairwise rubric: the other system.", kind=Path, metavar="RUN|FILE")]
    replace: Annotated[bool, Keyword("Write over a metric of this name that another judge gave.", kind=bool)]
    name: Annotated[str | None, Keyword("The metric's name (default: the rubric's).", metavar="NAME")]
    temperature: Annotated[
        float | None, Keyword("Of the judge (default: the rubric's).", short="-t", kind=float, low=0, high=5)
    ]
    max_tokens: Annotated[int | None, Keyword("Longest verdict (default: the rubric's).", **_COUNT)]
    out: Annotated[
        Place | None, Keyword("For a FILE: the run directory (default: runs/FILE-RUBRIC).", kind=Path, metavar="DIR")
    ]
    aggregate: Aggregate
    by: By
    top_k: Annotated[int | None, Keyword("For a FILE: the first K candidates of each case.", metavar="K", **_COUNT)]
    split: Annotated[
        str | None, Keyword("For a FILE: design or test cases, as design, test:0.3 or test:0.3:SEED.", metavar="PART")
    ]
    use: Use
    field: Field
    seed: Seed
    progress: bool
    fields: Mapping[str, str]


class CalibrateKeywords(TypedDict, total=False):
    """GradingConfig of `kofn.calibrate`."""

    apply: Annotated[
        Any,
        Keyword(
            "Correct the judge's rate there: a run, a file of outputs, or lines {id, judge}.",
            kind=Path,
            metavar="RUN|FILE",
        ),
    ]
    metric: Annotated[
        str | None,
        Keyword("Which metric of RUN has the judge's verdicts; the one called judge, else the first.", metavar="NAME"),
    ]
    aggregate: Annotated[
        str | None, Keyword("What makes a set of candidates pass; any_pass unless given.", metavar="NAME")
    ]
    threshold: Annotated[float | None, Keyword("Scores of at least X pass.", kind=float, metavar="X")]
    by: Annotated[
        Texts,
        Keyword(
            "Also in each segment; repeatable. The labels' own column segment unless given.",
            metavar="FIELD",
            many=True,
        ),
    ]
    known_rates: Annotated[Any, Keyword("Sensitivity and specificity, taken as exact.", metavar="S,T")]
    method: Annotated[
        str, Keyword("Of the corrected interval: auto, bootstrap or lang_reiczigel.", default="auto", metavar="M")
    ]
    level: Level
    seed: Seed
    selected: Annotated[
        bool, Keyword("Sample what the selector picks; with labels, correct the rate of its picks.", kind=bool)
    ]
    by_selector: Annotated[str | None, Keyword("Which selector.", metavar="NAME")]
    save: Annotated[bool, Keyword("Keep the corrected rate in the run of --apply: its reports show both.", kind=bool)]


class RunKeywords(Calls, total=False):
    """Options of `kofn.run`; what is left out is as the task says.

    `data` may be rows, and `model` and `answer_model` models or callables; `progress` shows it, on a terminal.
    """

    model: Annotated[
        Any,
        Keyword(
            "Model to evaluate, such as smollm2 (default), openai:NAME, openai:NAME@URL, "
            "anthropic:NAME, hf:FOLDER, gguf:FILE, replay:FILE; `kofn list models`.",
            metavar="M",
            short="-m",
        ),
    ]
    answer_model: Annotated[Any, Keyword("The critic, which answers after the actor has reasoned.", metavar="M")]
    repeats: Annotated[int | None, Keyword("Candidates per case (default: the task's).", short="-n", **_COUNT)]
    temperature: Annotated[
        float | None, Keyword("Of every stage that is not fixed at 0.", short="-t", kind=float, low=0, high=5)
    ]
    top_p: Annotated[
        float | None, Keyword("Nucleus sampling of the first stage.", kind=float, low=0, high=1, above=True)
    ]
    max_tokens: Annotated[int | None, Keyword("Longest output of the first stage.", **_COUNT)]
    stop: Annotated[Texts, Keyword("Where an output ends; repeatable.", metavar="TEXT", many=True)]
    chat: Annotated[bool | None, Keyword("Ask in messages, or as text to continue.", kind=bool, either=True)]
    two_stage: Annotated[bool, Keyword("Reason first, then answer from the reasoning.", kind=bool)]
    markovian: Annotated[
        bool | None, Keyword("Whether the answer is asked without the question.", kind=bool, either=True)
    ]
    actor_reward_weight: Annotated[float | None, Keyword("0: the critic answers; above: the actor.", kind=float, low=0)]
    compare_markovian: Annotated[bool, Keyword("Answer each reasoning without and with the question.", kind=bool)]
    adaptive: Annotated[bool, Keyword("Stop a case when its leading answer is safe.", kind=bool)]
    max_repeats: Annotated[
        int | None, Keyword("With --adaptive: the most candidates per case; --repeats is then the fewest.", **_COUNT)
    ]
    confidence: Annotated[
        float, Keyword("How safe, with --adaptive.", kind=float, default=0.95, low=0.5, high=1, above=True, below=True)
    ]
    data: Annotated[Any, Keyword("Another file or folder than the task's.", kind=Path)]
    limit: Annotated[int | None, Keyword("The first N cases.", **_COUNT)]
    samples: Annotated[Any, Keyword("Only these cases.", metavar="ID,ID,...")]
    sample: Annotated[
        int | None, Keyword("N cases, drawn with the seed, as many of each group as it has by share.", **_COUNT)
    ]
    extract: Annotated[Any, Keyword("Extractor of answers; llm:MODEL lets a model read them too.", metavar="E")]
    metric: Annotated[Specs, Keyword("Metric; repeatable.", metavar="M", many=True)]
    aggregate: Aggregate
    by: By
    threshold: Threshold
    verdict: Annotated[str | None, Keyword("The aggregator that says whether a case passes.", metavar="A")]
    policy: Annotated[str | None, Keyword("When the whole run passes.", metavar="P")]
    use: Use
    interval: Interval
    level: Level
    out: Annotated[Place | None, Keyword("The run directory (default: runs/TASK-MODEL).", kind=Path, metavar="DIR")]
    seed: Seed
    reproducible: Annotated[bool, Keyword("Bit for bit the same candidates again; slower.", kind=bool)]
    batch_size: Annotated[int | None, Keyword("Requests computed together, for hf models.", **_COUNT)]
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

    checkpoint: Annotated[str, Keyword("A name, a number from 1, or all.", default="last", metavar="C")]
    policy: Annotated[str, Keyword("When a submission passes.", default="core-cases", metavar="P")]
    group: Annotated[Texts, Keyword("Only this group; repeatable.", metavar="G", many=True)]
    case: Annotated[Texts, Keyword("Only this case, ID or GROUP/ID; repeatable.", metavar="ID", many=True)]
    repeat: Annotated[int, Keyword("Run every case so often; flaky ones are named.", default=1, **_COUNT)]
    aggregate: Annotated[Texts, Keyword("Over the set of submissions; repeatable.", metavar="A", short="-a", many=True)]
    timeout: Annotated[float | None, Keyword("Seconds a program of a data set may take.", **_ABOVE)]
    workers: Annotated[int | None, Keyword("Programs at the same time (default: the cores).", metavar="N", **_COUNT)]
    engine: Annotated[str, Keyword("local or ray.", default="local", metavar="E")]
    ray_address: Annotated[str | None, Keyword("A Ray cluster; without it one is started here.", metavar="A")]
    shared: Annotated[str | None, Keyword("A path that all nodes see, for what is sent to them.", metavar="URL")]
    python: Annotated[
        str | None, Keyword("What `python` is to a submission (default: the one kofn runs on).", metavar="P")
    ]
    show: Annotated[Texts, Keyword("Show this path to programs, read-only; repeatable.", metavar="PATH", many=True)]
    unsafe: Annotated[bool, Keyword("Run programs without a sandbox, with nothing but limits.", kind=bool)]
    out: Annotated[Place | None, Keyword("Where runs go (default: runs/verify-PROBLEM).", kind=Path, metavar="DIR")]
    tag: Tag
    progress: Any
    on_note: Callable[[str], None] | None


class AuditKeywords(Calls, total=False):
    """Options of `kofn.api.audit`."""

    extract: Annotated[
        Texts,
        Keyword(
            "An extractor to compare; repeatable (default: the one that suits the outputs, and its relatives).",
            metavar="E",
            many=True,
        ),
    ]
    model: Annotated[Any, Keyword("A model reads every output too, such as smollm2 or openai:MODEL.", metavar="M")]
    metric: Annotated[
        str | None, Keyword("What compares answers with references (default: what suits them).", metavar="M")
    ]
    limit: Annotated[int | None, Keyword("Only N cases, drawn by --seed.", metavar="N", **_COUNT)]
    seed: Seed
    format: Format
    field: Field
    store: Annotated[Place | None, Keyword("Keep the model's replies, to go on.", kind=Path, metavar="DIR")]
    fields: Mapping[str, str]


class ExportKeywords(TypedDict, total=False):
    """Options of `kofn export`."""

    extract: Annotated[str | None, Keyword("Extractor of answers, where files are read.", metavar="E")]
    metric: Annotated[Specs, Keyword("Metric, where files are read; repeatable.", metavar="M", many=True)]
    as_repeats: AsRepeats
    format: Format
    where: Where
    field: Field


_ALIASES = {"fields": "field", "metrics": "metric", "tags": "tag"}  # earlier names of the Python API


@cache
def options_of(kind: type) -> dict[str, Keyword | None]:
    """Name -> what is known of each option of a class; None for those that are for Python alone."""
    found = {}
    # what all verbs that call models share comes last
    shared = kind.__annotations__.keys() & Calls.__annotations__.keys()
    for name, annotation in sorted(kind.__annotations__.items(), key=lambda item: item[0] in shared):
        described = [one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, Keyword)]
        found[name] = described[0] if described else None
    return found


def settle(kind: type, options: Mapping[str, Any]) -> SimpleNamespace:
    """The options as attributes, each in one form; what is not given has its default, and `given` names the others.

    >>> settle(CurveKeywords, {"by": "topic"}).by
    ('topic',)
    >>> settle(CurveKeywords, {"bye": "topic"})
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown option 'bye': did you mean by?
    """
    known = options_of(kind)
    values: dict[str, Any] = {}
    for name, option in known.items():
        values[name] = None if option is None else option.default
        if option is not None and (option.many or option.pairs):
            values[name] = () if option.many else {}
        elif option is not None and option.kind is bool and not option.either:
            values[name] = False
    given = set()
    for name, value in options.items():
        if name not in known:
            raise UnknownName("option", name, [n for n in known if n not in _ALIASES or known[n] is not None])
        own = _ALIASES[name] if known[name] is None and name in _ALIASES else name
        if value is None:
            continue
        option = known[own]
        values[own] = value if option is None else option.settle(own, value)
        given.add(own)
    return SimpleNamespace(**values, given=frozenset(given))
