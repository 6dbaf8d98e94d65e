"""Options that the API and the command line share, declared once. Forms of output: `cli/verb_options.py`.

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

# Headings of `--help`, in the order in which they stand.
GROUPS = (
    COMMON := "Common options",
    INPUT := "Input",
    MODEL := "Model and sampling",
    STAGES := "Two stages",
    ADAPTIVE := "Adaptive repeats",
    JUDGE := "Judge",
    COMPARED := "What is compared",
    CHECKS := "Requirements",
    QUESTION := "Question",
    PILOT := "Pilot",
    SHEET := "Label sheet",
    SELECTION := "Selection",
    GRADING := "Grading",
    NUMBERS := "Numbers",
    COSTS := "Costs",
    PROGRAMS := "Programs",
    LIMITS := "Limits",
    RUN := "Run directory",
    EXPORT := "Export",
    SERVER := "Server",
    PARALLEL := "Parallel execution",
    OUTPUT := "Output",
    OTHER := "Other",
)


@dataclass(frozen=True, slots=True)
class Keyword:
    """What the command line needs to know of an option, and how a value is brought to one form.

    The annotation beside it says the rest (where that is Any, `kind` and `many` are given here):

    kind      bool, int, float, str or Path
    many      several may be given; the value is a tuple
    pairs     NAME=VALUE, several; the value is a mapping
    either    a bool that is also None, where nothing is said: --NAME and --no-NAME
    low, high the least and the most; `above` and `below` are bounds that are themselves excluded
    group     the heading of `--help` under which it stands, one of GROUPS
    common    whether it stands first in the help of a verb with many options; of an option that verbs share, the word
              COMMON in a verb's annotation says so
    also      other tools' names for it, and its own earlier ones: accepted, and not shown
    commas    whether commas outside brackets separate several: `pass@1,pass@4`
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
    group: str = OTHER
    common: bool = False
    also: tuple[str, ...] = ()
    commas: bool = False

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
            several = (value,) if alone else tuple(value)
            return several if not self.commas else tuple(part for one in several for part in split_names(one))
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


def split_names(given: Any) -> list[Any]:
    """Names that commas separate; those inside brackets or quotes separate parameters. What is no text stays whole.

    >>> split_names("pass@1, ndcg(k=3,gain='exp2'),mean")
    ['pass@1', "ndcg(k=3,gain='exp2')", 'mean']
    """
    if not isinstance(given, str) or "," not in given:
        return [given]
    parts, depth, quote = [""], 0, ""
    for at, c in enumerate(given):
        if quote:
            quote = "" if c == quote and given[at - 1] != "\\" else quote
        elif c in "'\"" and depth:
            quote = c
        depth += 0 if quote else (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip()]


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


Aggregate = Annotated[
    Specs,
    Keyword(
        "Aggregator, such as any_pass or pass@1,pass@4 (repeatable)",
        "A",
        short="-a",
        group=NUMBERS,
        commas=True,
    ),
]
Threshold = Annotated[float | None, Keyword("Minimum passing score (default: as graded, or 1.0)", "X", group=GRADING)]
TopK = Annotated[int | None, Keyword("Keep the first K candidates of each set", "K", low=1, group=INPUT)]
By = Annotated[Texts, Keyword("Segment results by this field (repeatable)", "FIELD", group=NUMBERS)]
Cluster = Annotated[
    str | None, Keyword("Resample clusters of cases that share this field's value", "FIELD", group=NUMBERS)
]
Weight = Annotated[str | None, Keyword("Field that holds the weight of each case", "FIELD", group=NUMBERS)]
Interval = Annotated[
    str,
    Keyword("Interval method: bootstrap, bca, wilson, t, ...", "METHOD", default="auto", group=NUMBERS),
]
Level = Annotated[float, Keyword("Confidence level of the intervals", "X", default=0.95, group=NUMBERS)]
Seed = Annotated[int, Keyword("Random seed", "N", default=0, group=NUMBERS)]
SplitPart = Annotated[
    str | None,
    Keyword("Part of the cases: design, test, test:0.3 or test:0.3:SEED", "PART", group=INPUT),
]
Use = Annotated[
    str | None,
    Keyword("Intended use of a set: any, vote, select, list or all", "USE", group=NUMBERS),
]
Field = Annotated[
    Mapping[str, str],
    Keyword("Name of a field in the file, such as output=text (repeatable)", "ROLE=NAME", group=INPUT),
]
Format = Annotated[
    str | None,
    Keyword("Input format (default: detected; `kofn list importers`)", "FORMAT", group=INPUT),
]
Where = Annotated[
    Mapping[str, str], Keyword("Keep only cases with this value (repeatable)", "FIELD=VALUE", group=INPUT)
]
AsRepeats = Annotated[bool, Keyword("Treat the files as repeats of the same cases, by id or position", group=INPUT)]
BatchIndex = Annotated[int | None, Keyword("Number for results.jsonl, such as the training step", "N", group=RUN)]
AppendResults = Annotated[
    Place | None, Keyword("Also append this run's line of results.jsonl to FILE", "FILE", group=RUN)
]
Tag = Annotated[Texts, Keyword("Tag to find the run by in `kofn view` (repeatable)", "WORD", group=RUN)]


class Calls(TypedDict, total=False):
    """How models are called: limits, retries, budgets, prices."""

    concurrency: Annotated[
        int | None, Keyword("Maximum concurrent calls, per model", "N", low=1, group=LIMITS, common=True)
    ]
    requests_per_second: Annotated[
        float | None, Keyword("Maximum requests per second, per model", "X", above=0, group=LIMITS)
    ]
    tokens_per_minute: Annotated[
        float | None, Keyword("Maximum tokens per minute, per model", "X", above=0, group=LIMITS)
    ]
    timeout: Annotated[float, Keyword("Maximum seconds per call", "SECONDS", default=600.0, above=0, group=LIMITS)]
    retries: Annotated[int, Keyword("Retries of a failed call", "N", low=0, default=6, group=LIMITS)]
    retry_errors: Annotated[bool, Keyword("Repeat calls that failed in an earlier start", group=LIMITS)]
    max_cost: Annotated[
        float | None, Keyword("Stop after spending this much, in dollars", "USD", above=0, group=LIMITS, common=True)
    ]
    token_budget: Annotated[
        int | None,
        Keyword("Stop after using this many tokens", "N", low=1, group=LIMITS, also=("max_tokens_total",)),
    ]
    max_time: Annotated[float | None, Keyword("Stop after this many seconds", "SECONDS", above=0, group=LIMITS)]
    cache: Annotated[bool, Keyword("Share replies at temperature 0 across runs", group=LIMITS)]
    prices: Annotated[Place | None, Keyword("YAML file with prices of tokens", "FILE", group=LIMITS)]
    max_tokens_total: int | None


class ScoreKeywords(TypedDict, total=False):
    """Options of `kofn.score`.

    `engine` is a name, or an engine of `kofn.parallel`. `everything` keeps fields that no number needs. `on_part(done,
    total)` is told after each part of large Parquet files, `on_note(text)` what is left out of a task file.
    """

    as_repeats: AsRepeats
    format: Format
    where: Where
    extract: Annotated[
        Spec | None,
        Keyword("Extractor, such as number, letter or pattern('x=(.*)')", "E", group=GRADING, common=True),
    ]
    metric: Annotated[
        Specs,
        Keyword("Metric against the reference (repeatable)", "M", group=GRADING, common=True, commas=True),
    ]
    aggregate: Annotated[Aggregate, COMMON]
    threshold: Annotated[Threshold, COMMON]
    top_k: TopK
    by: Annotated[By, COMMON]
    interval: Interval
    level: Level
    seed: Seed
    cluster: Cluster
    weight: Weight
    split: SplitPart
    use: Annotated[Use, COMMON]
    field: Annotated[Field, COMMON]
    workers: Annotated[int | None, Keyword("Processes for slow metrics and your own", "N", low=1, group=PARALLEL)]
    engine: Annotated[Any, Keyword("Engine that runs them: local or ray (default: local)", "E", group=PARALLEL)]
    ray_address: Annotated[str | None, Keyword("Address of a Ray cluster", "A", group=PARALLEL)]
    part_size: Annotated[
        Any,
        Keyword(
            "Read Parquet in parts of N candidates (default: 1,000,000, for 2M+)", "N", kind=int, low=1, group=PARALLEL
        ),
    ]
    out: Annotated[
        Place | None, Keyword("Write a run directory with report.html to DIR", "DIR", group=RUN, common=True)
    ]
    force: Annotated[bool, Keyword("Replace the run that is in --out", group=RUN)]
    task: Annotated[
        str | None,
        Keyword("Name of the task, or a task file whose grading is used", "TASK", group=RUN, common=True),
    ]
    verdict: Annotated[
        str | None,
        Keyword("Rule for a passing case, such as majority or 'mean >= 0.8'", "A", group=GRADING),
    ]
    group: Annotated[str | None, Keyword("Field whose values group the cases in the report", "FIELD", group=RUN)]
    group_type: Annotated[
        Mapping[str, str],
        Keyword("Core (default), Functionality, Regression or Error (repeatable)", "GROUP=TYPE", group=RUN),
    ]
    group_weight: Annotated[Mapping[str, float], Keyword("Weight of a group (repeatable)", "GROUP=W", group=RUN)]
    metric_weight: Annotated[Mapping[str, float], Keyword("Weight of a metric (repeatable)", "METRIC=W", group=RUN)]
    batch_index: BatchIndex
    append_results: AppendResults
    tag: Tag
    policy: Annotated[str | None, Keyword("Policy by which the run passes (default: no verdict)", "P", group=GRADING)]
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
            "Number to compare, such as any_pass (default: all; repeatable)",
            "A",
            short="-a",
            group=NUMBERS,
            common=True,
            commas=True,
        ),
    ]
    metric: Annotated[
        Texts,
        Keyword("Metric to compare (default: all shared; repeatable)", "M", group=NUMBERS, common=True, commas=True),
    ]
    by: Annotated[By, COMMON]
    split: SplitPart
    top_k: TopK
    all_pairs: Annotated[bool, Keyword("Compare every pair, not only each with the first", group=COMPARED, common=True)]
    verdict: Annotated[
        str | None, Keyword("Rule for a passing case, such as majority or 'mean >= 0.8'", "V", group=GRADING)
    ]
    use: Annotated[
        str | None,
        Keyword("Intended use: any, vote, select or all (default: the runs')", "USE", group=NUMBERS, common=True),
    ]
    extractors: Annotated[
        Texts,
        Keyword(
            "Grade the same outputs with each of these extractors", "E...", group=COMPARED, common=True, commas=True
        ),
    ]
    metrics: Annotated[
        Texts,
        Keyword("Grade the same outputs with each of these metrics", "M...", group=COMPARED, common=True, commas=True),
    ]
    selectors: Annotated[
        Texts,
        Keyword(
            "Pick by each of these: vote, first, a column, a metric, a YAML file", "S...", group=COMPARED, common=True
        ),
    ]
    evaluator: Annotated[
        str | None, Keyword("Metric that grades what selectors pick (default: the first)", "M", group=COMPARED)
    ]
    extract: Annotated[str | None, Keyword("Grade again with this extractor", "E", group=GRADING)]
    threshold: Threshold
    cluster: Cluster
    weight: Weight
    field: Annotated[Field, COMMON]
    alpha: Annotated[
        float, Keyword("Significance level: a difference counts with p below it", "X", default=0.05, group=NUMBERS)
    ]
    level: Level
    seed: Seed
    fields: Mapping[str, str]


class CurveKeywords(TypedDict, total=False):
    """Options of `kofn.curve`."""

    metric: Annotated[
        str | None, Keyword("Metric whose passes count (default: the first)", "M", group=NUMBERS, common=True)
    ]
    selector: Annotated[
        str | None,
        Keyword(
            "Selector: a column, vote, length, first, mine.py:pick, a YAML file", "S", group=SELECTION, common=True
        ),
    ]
    measure: Annotated[
        str | None,
        Keyword(
            "Measure that decides: any, selected or majority (default: by --use)",
            "M",
            choices=("any", "selected", "majority"),
            group=SELECTION,
            common=True,
        ),
    ]
    min_gain_per_dollar: Annotated[
        float | None, Keyword("Minimum gain per dollar of a further candidate", "X", group=COSTS, common=True)
    ]
    max_latency: Annotated[
        float | None, Keyword("Maximum seconds for all n answers", "SECONDS", group=COSTS, common=True)
    ]
    sequential: Annotated[bool, Keyword("Draw candidates one after the other, not in parallel", group=COSTS)]
    budget: Annotated[
        float | None, Keyword("Maximum cost of one case's candidates, in dollars", "USD", group=COSTS, common=True)
    ]
    cost_per_candidate: Annotated[
        float | None, Keyword("Cost of a candidate, where the outputs carry none", "USD", group=COSTS)
    ]
    extend: Annotated[
        int | None, Keyword("Extrapolate to K candidates (beta-binomial)", "K", low=1, group=NUMBERS, common=True)
    ]
    labels: Annotated[
        Any,
        Keyword("Human and judge verdicts, for a corrected curve", "FILE", kind=Path, group=NUMBERS),
    ]
    by: Annotated[By, COMMON]
    split: SplitPart
    interval: Interval
    level: Level
    seed: Seed
    threshold: Threshold
    use: Annotated[
        str | None,
        Keyword("Intended use of a set: any, vote, select, list or all", "USE", group=SELECTION, common=True),
    ]


class CheckKeywords(TypedDict, total=False):
    """Options of `kofn.check`. `on_note(text)` is told where the outcome could not be recorded in the run."""

    policy: Annotated[str | None, Keyword("Pass policy (default: the run's, unless --require)", "P", group=CHECKS)]
    require: Annotated[
        Texts,
        Keyword("Requirement, such as 'any_pass >= 0.8' (repeatable)", "EXPR", group=CHECKS),
    ]
    each: Annotated[
        Texts, Keyword("Require the same in every segment of this field (repeatable)", "FIELD", group=CHECKS)
    ]
    baseline: Annotated[Any, Keyword("Refuse a significant drop against this run", "RUN", kind=Path, group=CHECKS)]
    alpha: Annotated[
        float, Keyword("Significance level: a drop counts with p below it", "X", default=0.05, group=CHECKS)
    ]
    max_cost: Annotated[float | None, Keyword("Maximum cost of all candidates, in dollars", "USD", group=CHECKS)]
    min_passes: Annotated[str | None, Keyword("Minimum passing candidates of every Core case", "M[/N]", group=CHECKS)]
    strict: Annotated[bool, Keyword("Refuse numbers picked and graded by the same judge or score", group=CHECKS)]
    allow_double_dipping: Annotated[
        bool, Keyword("Accept required numbers picked and graded by the same judge or score", group=CHECKS)
    ]
    fail_on: Annotated[Texts, Keyword("Refuse a warning with this code (repeatable)", "CODE", group=CHECKS)]
    allow_missing: Annotated[bool, Keyword("Accept candidates without a grade and cases not verified", group=CHECKS)]
    junit: Annotated[Place | None, Keyword("Write JUnit XML to FILE, one test per requirement", "FILE", group=OUTPUT)]
    junit_cases: Annotated[bool, Keyword("Add one test per case to the JUnit XML", group=OUTPUT)]
    summary: Annotated[
        Place | None,
        Keyword("Append a Markdown summary to FILE", "FILE", env="GITHUB_STEP_SUMMARY", group=OUTPUT),
    ]
    on_note: Callable[[str], None] | None


class PlanKeywords(TypedDict, total=False):
    """Options of `kofn.plan`."""

    width: Annotated[float | None, Keyword("Full width of the wanted interval", "W", group=QUESTION)]
    difference: Annotated[float | None, Keyword("Difference between two systems to detect", "D", group=QUESTION)]
    power: Annotated[float, Keyword("Probability of detecting it", "X", default=0.8, group=QUESTION)]
    level: Annotated[float, Keyword("Confidence level of the interval", "X", default=0.95, group=QUESTION)]
    max_cases: Annotated[int | None, Keyword("Number of cases available", "N", low=2, group=QUESTION)]
    against: Annotated[Any, Keyword("Pilot of the other system, paired by case", "RUN|FILE", kind=Path, group=PILOT)]
    correlation: Annotated[
        float,
        Keyword("Correlation of the systems over cases", "R", default=0.0, group=PILOT),
    ]
    metric: Annotated[str | None, Keyword("Metric of the pilot (default: the first)", "M", group=PILOT)]
    labels: Annotated[
        Any, Keyword("Human and judge verdicts, to plan a corrected rate", "FILE", kind=Path, group=PILOT)
    ]
    p: Annotated[float | None, Keyword("Expected rate, instead of a pilot", "P", group=PILOT)]
    between: Annotated[
        float | None,
        Keyword("Variance between cases (or of their differences)", "V", group=PILOT),
    ]
    within: Annotated[float | None, Keyword("Variance between repeats of a case", "V", group=PILOT)]
    cost_per_candidate: Annotated[
        float | None, Keyword("Cost of a candidate (default: the pilot's mean)", "USD", group=COSTS)
    ]
    cost_per_case: Annotated[float | None, Keyword("Cost of a case, such as writing it", "USD", group=COSTS)]
    cost_per_label: Annotated[float | None, Keyword("Cost of a human label", "USD", group=COSTS)]


class TrendKeywords(TypedDict, total=False):
    """Options of `kofn.trend`."""

    task: Annotated[str | None, Keyword("Follow only the runs of this task", "NAME", group=INPUT)]
    last: Annotated[int | None, Keyword("Keep only the newest N runs per task", "N", low=1, group=INPUT)]
    aggregate: Annotated[
        Texts,
        Keyword(
            "Number to follow: an aggregator, pass_rate or score (repeatable)",
            "A",
            short="-a",
            group=NUMBERS,
            commas=True,
        ),
    ]
    metric: Annotated[str | None, Keyword("Metric of the aggregator (default: a run's first)", "M", group=NUMBERS)]
    alpha: Annotated[
        float, Keyword("Significance level: a change counts with p below it", "X", default=0.05, group=NUMBERS)
    ]


class JudgeKeywords(Calls, total=False):
    """Options of `kofn.judge`; `progress` shows it, on a terminal."""

    rubric: Annotated[
        Any,
        Keyword(
            "correctness, helpfulness, faithfulness, preference, or a YAML file",
            "R",
            required=True,
            group=JUDGE,
            common=True,
        ),
    ]
    model: Annotated[
        Any,
        Keyword(
            "Judge model, as in kofn run (several form a panel)",
            "M",
            short="-m",
            many=True,
            required=True,
            group=JUDGE,
            common=True,
        ),
    ]
    repeats: Annotated[
        int,
        Keyword(
            "Verdicts per candidate", "N", short="-r", default=1, low=1, group=JUDGE, common=True, also=("epochs",)
        ),
    ]
    panel: Annotated[
        str,
        Keyword(
            "How a panel's scores combine: mean or vote", "HOW", choices=("mean", "vote"), default="mean", group=JUDGE
        ),
    ]
    choose: Annotated[
        bool,
        Keyword("Choose the likeliest verdict, without a reply (smollm2, gguf:, hf:)", group=JUDGE),
    ]
    against: Annotated[
        Any,
        Keyword("Other system, for a pairwise rubric", "RUN|FILE", kind=Path, group=JUDGE, common=True),
    ]
    replace: Annotated[bool, Keyword("Replace another judge's metric of the same name", group=RUN)]
    name: Annotated[str | None, Keyword("Name of the metric (default: the rubric's)", "NAME", group=RUN, common=True)]
    temperature: Annotated[
        float | None, Keyword("Temperature (default: the rubric's)", "X", short="-t", low=0, high=5, group=JUDGE)
    ]
    max_tokens: Annotated[
        int | None, Keyword("Maximum tokens of a verdict (default: the rubric's)", "N", low=1, group=JUDGE)
    ]
    out: Annotated[
        Place | None,
        Keyword("Run directory of a FILE (default: runs/FILE-RUBRIC)", "DIR", group=RUN, common=True),
    ]
    aggregate: Annotated[Aggregate, COMMON]
    by: By
    top_k: Annotated[int | None, Keyword("Keep the first K candidates of each set of a FILE", "K", low=1, group=INPUT)]
    split: Annotated[
        str | None,
        Keyword("Part of a FILE: design, test, test:0.3 or test:0.3:SEED", "PART", group=INPUT),
    ]
    use: Use
    field: Field
    seed: Seed
    progress: bool
    fields: Mapping[str, str]
    epochs: int


class CalibrateKeywords(TypedDict, total=False):
    """Options of `kofn.calibrate`."""

    apply: Annotated[
        Any,
        Keyword("Correct the judge's rate in a run, a file, or lines {id, judge}", "RUN|FILE", kind=Path, group=INPUT),
    ]
    metric: Annotated[
        str | None,
        Keyword("Metric with the judge's verdicts (default: judge or the first)", "NAME", group=INPUT),
    ]
    aggregate: Annotated[str | None, Keyword("Rule by which a set passes (default: any_pass)", "A", group=NUMBERS)]
    threshold: Annotated[float | None, Keyword("Minimum passing score", "X", group=NUMBERS)]
    by: Annotated[
        Texts,
        Keyword("Segment by this field (default: column segment; repeatable)", "FIELD", group=NUMBERS),
    ]
    known_rates: Annotated[Any, Keyword("Sensitivity and specificity, taken as exact", "S,T", group=NUMBERS)]
    method: Annotated[
        str,
        Keyword("Interval method: bootstrap or lang_reiczigel", "METHOD", default="auto", group=NUMBERS),
    ]
    level: Level
    seed: Seed
    selected: Annotated[bool, Keyword("Sample the selector's picks; with labels, correct their rate", group=SELECTION)]
    by_selector: Annotated[str | None, Keyword("Selector whose picks are meant", "NAME", group=SELECTION)]
    save: Annotated[bool, Keyword("Store the corrected rate in the run of --apply", group=RUN)]


class RunKeywords(Calls, total=False):
    """Options of `kofn.run`; what is left out is as the task says.

    `data` may be rows, and `model` and `answer_model` models or callables; `progress` shows it, on a terminal.
    """

    model: Annotated[
        Any,
        Keyword(
            "Model, such as openai:NAME or hf:FOLDER (default: smollm2)",
            "M",
            short="-m",
            group=MODEL,
            common=True,
        ),
    ]
    answer_model: Annotated[Any, Keyword("Critic that answers after the actor has reasoned", "M", group=STAGES)]
    repeats: Annotated[
        int | None,
        Keyword(
            "Candidates per case (default: the task's)",
            "N",
            short="-r",
            low=1,
            group=MODEL,
            common=True,
            also=("epochs",),
        ),
    ]
    temperature: Annotated[
        float | None,
        Keyword(
            "Temperature (default: the task's)",
            "X",
            short="-t",
            low=0,
            high=5,
            group=MODEL,
            common=True,
        ),
    ]
    top_p: Annotated[float | None, Keyword("Nucleus sampling of the first stage", "X", high=1, above=0, group=MODEL)]
    max_tokens: Annotated[
        int | None, Keyword("Maximum tokens of an output of the first stage", "N", low=1, group=MODEL)
    ]
    stop: Annotated[Texts, Keyword("Stop sequence (repeatable)", "TEXT", group=MODEL)]
    chat: Annotated[bool | None, Keyword("Send messages, or text to continue", group=MODEL)]
    two_stage: Annotated[bool, Keyword("Reason first, then answer from the reasoning", group=STAGES)]
    markovian: Annotated[bool | None, Keyword("Ask for the answer without the question, or with it", group=STAGES)]
    actor_reward_weight: Annotated[
        float | None, Keyword("Weight of the actor's reward; above 0 the actor answers", "X", low=0, group=STAGES)
    ]
    compare_markovian: Annotated[bool, Keyword("Answer each reasoning without and with the question", group=STAGES)]
    adaptive: Annotated[bool, Keyword("Stop a case when its leading answer is safe", group=ADAPTIVE)]
    max_repeats: Annotated[
        int | None,
        Keyword("Maximum candidates per case; --repeats is the minimum", "N", low=1, group=ADAPTIVE),
    ]
    confidence: Annotated[
        float,
        Keyword("Probability at which an answer is safe", "X", default=0.95, above=0.5, below=1, group=ADAPTIVE),
    ]
    data: Annotated[Any, Keyword("File or folder to use instead of the task's", "PATH", kind=Path, group=INPUT)]
    limit: Annotated[
        int | None, Keyword("Run only the first N cases", "N", short="-n", low=1, group=INPUT, common=True)
    ]
    ids: Annotated[Any, Keyword("Run only these cases", "ID,ID,...", group=INPUT, also=("samples",))]
    sample: Annotated[
        int | None,
        Keyword("Run N cases drawn with --seed, in proportion to their groups", "N", low=1, group=INPUT),
    ]
    extract: Annotated[Any, Keyword("Extractor of answers; llm:MODEL adds a model that reads", "E", group=GRADING)]
    metric: Annotated[Specs, Keyword("Metric (repeatable)", "M", group=GRADING, common=True, commas=True)]
    aggregate: Annotated[Aggregate, COMMON]
    by: By
    threshold: Threshold
    verdict: Annotated[
        str | None,
        Keyword("Rule for a passing case, such as majority or 'mean >= 0.8'", "A", group=GRADING),
    ]
    policy: Annotated[str | None, Keyword("Policy by which the run passes (default: the task's)", "P", group=GRADING)]
    use: Annotated[str | None, Keyword("Intended use of a set: any, vote, select, list or all", "USE", group=NUMBERS)]
    interval: Interval
    level: Level
    out: Annotated[Place | None, Keyword("Run directory (default: runs/TASK-MODEL)", "DIR", group=RUN, common=True)]
    seed: Seed
    reproducible: Annotated[bool, Keyword("Reproduce candidates bit for bit (slower)", group=MODEL)]
    batch_size: Annotated[int | None, Keyword("Requests computed together, for hf models", "N", low=1, group=MODEL)]
    device: Annotated[str | None, Keyword("Device for hf models: cpu, cuda or mps", "D", group=MODEL)]
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
    samples: Any
    epochs: int | None


class VerifyKeywords(TypedDict, total=False):
    """Options of `kofn.verify`.

    `progress` is a `kofn.problems.ExecutionCount`; `on_note(text)` is told where an interrupted
    verification is kept.
    """

    checkpoint: Annotated[
        str, Keyword("Checkpoint: a name, a number from 1, or all", "C", default="last", group=INPUT, common=True)
    ]
    policy: Annotated[
        str, Keyword("Policy by which a submission passes", "P", default="core-cases", group=GRADING, common=True)
    ]
    group: Annotated[Texts, Keyword("Run only this group (repeatable)", "G", group=INPUT, common=True)]
    case: Annotated[Texts, Keyword("Run only this case, ID or GROUP/ID (repeatable)", "ID", group=INPUT, common=True)]
    repeats: Annotated[
        int,
        Keyword(
            "Runs per case; cases with mixed results are named as flaky",
            "N",
            short="-r",
            default=1,
            low=1,
            group=INPUT,
            common=True,
            also=("repeat", "epochs"),
        ),
    ]
    aggregate: Annotated[
        Texts,
        Keyword(
            "Aggregator over the submissions (repeatable)", "A", short="-a", group=GRADING, common=True, commas=True
        ),
    ]
    timeout: Annotated[
        float | None, Keyword("Maximum seconds per program of a data set", "SECONDS", above=0, group=PROGRAMS)
    ]
    workers: Annotated[
        int | None,
        Keyword("Concurrent programs (default: the number of cores)", "N", low=1, group=PARALLEL, common=True),
    ]
    engine: Annotated[str, Keyword("Engine: local or ray", "E", default="local", group=PARALLEL)]
    ray_address: Annotated[
        str | None, Keyword("Address of a Ray cluster (default: start one here)", "A", group=PARALLEL)
    ]
    shared: Annotated[str | None, Keyword("Path that all nodes see, for the files sent to them", "URL", group=PARALLEL)]
    python: Annotated[
        str | None, Keyword("Interpreter that `python` is (default: the one kofn runs on)", "PATH", group=PROGRAMS)
    ]
    show: Annotated[Texts, Keyword("Show this path to programs, read-only (repeatable)", "PATH", group=PROGRAMS)]
    unsafe: Annotated[bool, Keyword("Run programs without a sandbox, with limits only", group=PROGRAMS, common=True)]
    out: Annotated[
        Place | None, Keyword("Folder for the runs (default: runs/verify-PROBLEM)", "DIR", group=RUN, common=True)
    ]
    tag: Tag
    progress: Any
    on_note: Callable[[str], None] | None
    repeat: int
    epochs: int


class AuditKeywords(Calls, total=False):
    """Options of `kofn.api.audit`."""

    extract: Annotated[
        Texts,
        Keyword(
            "Extractor to compare (default: those that suit; repeatable)", "E", group=GRADING, common=True, commas=True
        ),
    ]
    model: Annotated[
        Any,
        Keyword("Model that reads every output too, such as openai:NAME", "M", group=GRADING, common=True),
    ]
    metric: Annotated[
        str | None,
        Keyword("Metric that compares answers with references", "M", group=GRADING, common=True),
    ]
    sample: Annotated[
        int | None,
        Keyword("Use N cases, drawn with --seed", "N", low=1, group=INPUT, common=True, also=("limit",)),
    ]
    seed: Annotated[int, Keyword("Random seed", "N", default=0, group=INPUT)]
    format: Format
    field: Annotated[Field, COMMON]
    store: Annotated[
        Place | None, Keyword("Store the model's replies in DIR, to resume", "DIR", group=RUN, common=True)
    ]
    fields: Mapping[str, str]
    limit: int | None


class ExportKeywords(TypedDict, total=False):
    """Options of `kofn export`."""

    extract: Annotated[str | None, Keyword("Extractor of answers, for files", "E", group=GRADING)]
    metric: Annotated[Specs, Keyword("Metric, for files (repeatable)", "M", group=GRADING, commas=True)]
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
    return {name: _declared(hint) if hasattr(hint, "__metadata__") else None for name, hint in ordered}


def _declared(hint: Any) -> Keyword:
    """What an annotation says of an option."""
    option: Keyword = hint.__metadata__[0]
    return replace(option.annotated(hint.__origin__), common=option.common or COMMON in hint.__metadata__)


def settle(kind: type, options: Mapping[str, Any]) -> SimpleNamespace:
    """The options as attributes, each in one form; what is not given has its default, and `given` names the others.

    >>> settle(CurveKeywords, {"by": "topic"}).by
    ('topic',)
    >>> settle(CurveKeywords, {"bye": "topic"})
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown option 'bye': did you mean by?
    """
    known = options_of(kind)
    also = {**_ALIASES, **{name: own for own, option in known.items() if option for name in option.also}}
    values = {name: None if option is None else option.unset for name, option in known.items()}
    given: dict[str, str] = {}  # an option -> the name it was given by
    for name, value in options.items():
        if name not in known:
            raise UnknownName("option", name, [n for n in known if n not in also or known[n] is not None])
        if value is None:
            continue
        own = also.get(name, name) if known[name] is None else name
        option = known[own]
        if own in given:
            raise InputError(f"{given[own]} and {name} are the same option: give one")
        values[own] = value if option is None else option.settle(own, value)
        given[own] = name
    return SimpleNamespace(**values, given=frozenset(given))


def call_limits(asked: SimpleNamespace) -> "Limits":
    """The limits of calls among the options."""
    return generate.Limits(**{field.name: getattr(asked, field.name) for field in fields(generate.Limits)})
