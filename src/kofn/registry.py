"""The table of every name: aggregators, extractors, metrics, models, importers, exporters. A new one is entered here.

Each kind has one literal table, name -> "module:attribute". A name is a built-in ("any_pass"), a built-in with
parameters ("ndcg(k=3)"), a short form ("pass@5", "pass^3", "maj@5", "selected@5", "ndcg@3"), a path to your own
("my_pkg.module:thing" or "folder/file.py:thing", parameters allowed), or one that an installed package advertises by
entry point (groups kofn.aggregators, kofn.extractors, kofn.metrics, kofn.models, kofn.importers, kofn.exporters). A
clash is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from functools import lru_cache, partial
from importlib import import_module
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.errors import InputError, UnknownName
from kofn.metrics.base import as_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kofn.aggregators.base import Aggregator

AGGREGATORS = {
    "first": "kofn.aggregators.scores:First",
    "mean": "kofn.aggregators.scores:Mean",
    "median": "kofn.aggregators.scores:Median",
    "max": "kofn.aggregators.scores:Max",
    "min": "kofn.aggregators.scores:Min",
    "std": "kofn.aggregators.scores:Std",
    "best_score": "kofn.aggregators.scores:BestScore",
    "weighted_mean": "kofn.aggregators.scores:WeightedMean",
    "any_pass": "kofn.aggregators.passes:AnyPass",
    "any_correct": "kofn.aggregators.passes:AnyCorrect",
    "all_pass": "kofn.aggregators.passes:AllPass",
    "all_correct": "kofn.aggregators.passes:AllCorrect",
    "majority_pass": "kofn.aggregators.passes:MajorityPass",
    "at_least": "kofn.aggregators.passes:AtLeast",
    "pass_at": "kofn.aggregators.passes:PassAt",
    "pass_hat": "kofn.aggregators.passes:PassHat",
    "g_pass_at": "kofn.aggregators.passes:GPassAt",
    "majority": "kofn.aggregators.votes:Majority",
    "weighted_vote": "kofn.aggregators.votes:WeightedVote",
    "maj_at": "kofn.aggregators.votes:MajAt",
    "agreement": "kofn.aggregators.votes:Agreement",
    "vote_margin": "kofn.aggregators.votes:VoteMargin",
    "answered": "kofn.aggregators.votes:Answered",
    "unique_answers": "kofn.aggregators.votes:UniqueAnswers",
    "dcg": "kofn.aggregators.ranking:Dcg",
    "ndcg": "kofn.aggregators.ranking:Ndcg",
    "mrr": "kofn.aggregators.ranking:Mrr",
    "precision": "kofn.aggregators.ranking:Precision",
    "recall": "kofn.aggregators.ranking:Recall",
    "coverage": "kofn.aggregators.ranking:Coverage",
    "facet_coverage": "kofn.aggregators.ranking:FacetCoverage",
    "distinct": "kofn.aggregators.diversity:Distinct",
    "unique_texts": "kofn.aggregators.diversity:UniqueTexts",
    "self_bleu": "kofn.aggregators.diversity:SelfBleu",
    "redundancy": "kofn.aggregators.diversity:Redundancy",
    "redundancy_penalty": "kofn.aggregators.diversity:RedundancyPenalty",
    "semantic_diversity": "kofn.aggregators.diversity:SemanticDiversity",
    "selected": "kofn.aggregators.scores:Selected",
    "selected_pass": "kofn.aggregators.scores:SelectedPass",
    "selected_at": "kofn.aggregators.scores:SelectedAt",
}

EXTRACTORS = {
    "letter": "kofn.extract:letter",
    "letter_word_boundary": "kofn.extract:letter_word_boundary",
    "letter_first": "kofn.extract:letter_first",
    "number": "kofn.extract:number",
    "number_anchor": "kofn.extract:number_anchor",
    "number_simple": "kofn.extract:number_simple",
    "boxed": "kofn.extract:boxed",
    "math": "kofn.extract:math",
    "labelled_text": "kofn.extract:labelled_text",
    "text": "kofn.extract:text",
    "last_line": "kofn.extract:last_line",
    "strip_reasoning": "kofn.extract:strip_reasoning",
    "pattern": "kofn.extract:Pattern",
    "json_field": "kofn.extract:JsonField",
    "lm_eval_filter": "kofn.extract.compatible:LmEvalFilter",
    "none": "kofn.extract:none",
}

METRICS = {
    "exact_match": "kofn.metrics:ExactMatch",
    "numeric": "kofn.metrics:Numeric",
    "choice": "kofn.metrics:Choice",
    "text_equal": "kofn.metrics:TextEqual",
    "contains": "kofn.metrics:Contains",
    "regex_match": "kofn.metrics:RegexMatch",
    "token_f1": "kofn.metrics:TokenF1",
    "rouge_l": "kofn.metrics:RougeL",
    "bleu": "kofn.metrics:Bleu",
    "chrf": "kofn.metrics:Chrf",
    "math_equal": "kofn.metrics:MathEqual",
    "json_equal": "kofn.metrics:JsonEqual",
    "literal_equal": "kofn.metrics:LiteralEqual",
    "schema": "kofn.metrics:Schema",
    "refused": "kofn.metrics:Refused",
    "truncated": "kofn.metrics:Truncated",
    "unparsed": "kofn.metrics:Unparsed",
    "runs_tests": "kofn.problems.functions:RunsTests",
}

MODELS = {
    "smollm2": "kofn.models.llama_cpp:SmolLM2",
    "gguf": "kofn.models.llama_cpp:Embedded",
    "openai": "kofn.models.openai:OpenAI",
    "anthropic": "kofn.models.anthropic:Anthropic",
    "hf": "kofn.models.hugging_face:Transformers",
    "replay": "kofn.models.replay:Replay",
    "command": "kofn.models.command:Command",
    "fake": "kofn.models.factory:Fake",
}

IMPORTERS = {
    "lm_eval": "kofn.importers.lm_eval:IMPORTER",
    "evalplus": "kofn.importers.code_samples:EVALPLUS",
    "human_eval": "kofn.importers.code_samples:HUMAN_EVAL",
    "inspect": "kofn.importers.inspect_log:IMPORTER",
    "promptfoo": "kofn.importers.promptfoo:IMPORTER",
    "openai_evals": "kofn.importers.openai_evals:IMPORTER",
    "helm": "kofn.importers.helm:IMPORTER",
    "nemo_skills": "kofn.importers.nemo_skills:IMPORTER",
    "lighteval": "kofn.importers.lighteval:IMPORTER",
    "hf_dataset": "kofn.importers.hf_dataset:IMPORTER",
}

EXPORTERS = {
    "wide": "kofn.exporters.base:WIDE",
    "long": "kofn.exporters.base:LONG",
    "csv": "kofn.exporters.base:CSV",
    "inspect": "kofn.exporters.inspect_log:EXPORTER",
    "every_eval_ever": "kofn.exporters.every_eval_ever:EXPORTER",
}

TABLES = {
    "importer": IMPORTERS,
    "exporter": EXPORTERS,
    "aggregator": AGGREGATORS,
    "extractor": EXTRACTORS,
    "metric": METRICS,
    "model": MODELS,
}

# What other tools call it: an unknown name of these is answered with ours.
ALSO_CALLED = {
    "metric": {
        "f1": "token_f1", "f1_score": "token_f1", "squad": "token_f1", "em": "exact_match", "exact": "exact_match",
        "accuracy": "exact_match", "acc": "exact_match", "match": "exact_match", "equals": "exact_match",
        "string_match": "exact_match", "includes": "contains", "icontains": "contains", "substring": "contains",
        "regex": "regex_match", "rouge": "rouge_l", "rougel": "rouge_l", "rouge-l": "rouge_l", "rouge-n": "rouge_l",
        "sacrebleu": "bleu", "math": "math_equal", "math_verify": "math_equal", "is_equiv": "math_equal",
        "number": "numeric", "number_match": "numeric", "multiple_choice": "choice", "letter": "choice",
        "json": "json_equal", "is_json": "schema", "is-json": "schema", "json_schema": "schema",
        "code": "runs_tests", "unit_tests": "runs_tests", "human_eval": "runs_tests", "refusal": "refused",
    },
    "aggregator": {
        "average": "mean", "avg": "mean", "mean_score": "mean", "mode": "majority", "vote": "majority",
        "majority_vote": "majority", "self_consistency": "majority", "consensus": "agreement", "cons": "majority",
        "consistency": "agreement", "pass_at_k": "pass@5", "pass_k": "pass^5", "any": "any_pass", "all": "all_pass",
        "best": "best_score", "best_of_n": "best_score", "bon": "selected", "map": "ndcg", "hit_rate": "any_pass",
        "diversity": "distinct", "stddev": "std", "stdev": "std",
    },
    "extractor": {
        "regex": "pattern", "regexp": "pattern", "json": "json_field", "gsm8k": "number",
        "flexible-extract": "number", "strict-match": "number_anchor", "last_number": "number", "numeric": "number",
        "choice": "letter", "mcq": "letter", "multiple_choice": "letter", "box": "boxed", "raw": "text",
        "identity": "text", "strip": "text",
    },
    "model": {
        "gpt": "openai", "claude": "anthropic", "huggingface": "hf", "transformers": "hf",
        "vllm": "openai:NAME@http://127.0.0.1:8000/v1", "ollama": "openai:NAME@http://127.0.0.1:11434/v1",
        "azure": "openai", "openrouter": "openai", "together": "openai", "groq": "openai", "llama.cpp": "gguf",
        "llamacpp": "gguf", "llama_cpp": "gguf", "mock": "fake", "mockllm": "fake", "python": "fake",
        "exec": "command", "shell": "command",
    },
}  # fmt: skip

SHORT = {"pass": "pass_at", "any": "pass_at", "maj": "maj_at", "p": "precision", "selected": "selected_at"}

_SPEC = re.compile(r"(?P<name>[\w.:/-]+)\s*(?:\((?P<args>.*)\))?\s*", re.DOTALL)
_AT = re.compile(r"(?P<name>[a-z_]+)(?P<sign>[@^])(?P<k>\d+)")


class RegistryEntry(NamedTuple):
    """One line of `kofn list`."""

    name: str
    summary: str
    origin: str


def aggregator(spec: str | Callable[..., Any]) -> Aggregator:
    """The aggregator of this name, or of this function of one set.

    >>> aggregator("pass@5")
    PassAt(k=5)
    >>> aggregator("ndcg(k=3)").name
    'ndcg(k=3)'
    >>> aggregator("any_pas")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown aggregator 'any_pas': did you mean any_pass ...?
    """
    # numpy comes with it, which `kofn list` and the names of models do without
    from kofn.aggregators.base import Aggregator, PerSet

    rule = _resolve("aggregator", spec)
    if isinstance(rule, Aggregator):
        return rule
    return PerSet(rule, spec if isinstance(spec, str) else "")


def extractor(spec: str | Callable[..., Any]) -> Callable[..., str | None]:
    """The extractor of this name: `(text, choices=None) -> str | None`.

    >>> extractor("number")("The answer is $29.00.")
    '29'
    """
    extract: Callable[..., str | None] = _resolve("extractor", spec)
    return extract


def metric(spec: str | Callable[..., Any]) -> Callable[..., Any]:
    """The metric of this name: `(prediction, reference) -> number, bool or mapping`.

    Also a function of `references` and `predictions`, and an object that has it as `compute`.

    >>> float(metric("numeric")("1,080", "1080.0"))
    1.0
    """
    score: Callable[..., Any] = as_metric(_resolve("metric", as_metric(spec)))
    return score


def model(prefix: str) -> Any:
    """The backend whose specs begin with this ("openai" of "openai:MODEL"), or the object at "module:function".

    >>> model("gguf").__name__
    'Embedded'
    >>> model("opanai")
    Traceback (most recent call last):
    kofn.errors.UnknownName: unknown model 'opanai': did you mean openai?
    """
    target = prefix if ":" in prefix else known("model").get(prefix)
    if target is None:
        hint = "expected smollm2, gguf:PATH, openai:MODEL, anthropic:MODEL, hf:PATH; `kofn list models` shows them all"
        raise UnknownName("model", prefix, list(known("model")), hint=hint, also=_models_called(prefix))
    return _load(target, "model")


def _models_called(prefix: str) -> dict[str, str]:
    """What other tools call a backend; the name of a model alone stands for its vendor's.

    >>> _models_called("gpt-4o-mini")["gpt-4o-mini"]
    'openai:gpt-4o-mini'
    """
    called = ALSO_CALLED["model"]
    family = called.get(prefix.lower().partition("-")[0])
    return {**called, prefix.lower(): f"{family}:{prefix}"} if family and "-" in prefix else called


def importers() -> dict[str, Any]:
    """Every reader of another tool's files by its name: kofn's own, then those of installed packages.

    >>> importers()["human_eval"].name
    'human_eval'
    """
    return {name: _load(target, "importer") for name, target in known("importer").items()}


def exporters() -> dict[str, Any]:
    """Every writer for other tools by its name: kofn's own, then those of installed packages."""
    return {name: _load(target, "exporter") for name, target in known("exporter").items()}


def named_object(spec: str, kind: str) -> Any:
    """The object at "module:name" or "file.py:name", for kinds that have no table of names.

    >>> named_object("math:sqrt", "selector")(9.0)
    3.0
    """
    return _load(spec, kind)


def entries(kind: str) -> list[RegistryEntry]:
    """Every name of a kind with the first line of its docstring."""
    return [
        RegistryEntry(name, _summary(_load(target, kind)), "" if name in TABLES[kind] else target.partition(":")[0])
        for name, target in known(kind).items()
    ]


@lru_cache(maxsize=8)
def known(kind: str) -> dict[str, str]:
    """Name -> target of a kind: built in, and advertised by installed packages."""
    # slow to import (email, zipfile), and only a name that is looked up needs it
    from importlib.metadata import entry_points

    table = dict(TABLES[kind])
    for point in entry_points(group=f"kofn.{kind}s"):
        if table.get(point.name, point.value) != point.value:
            raise InputError(
                f"two things are called {kind} {point.name!r}: {table[point.name]} and {point.value}; "
                "uninstall or rename one"
            )
        table[point.name] = point.value
    return table


def _resolve(kind: str, spec: str | Callable[..., Any]) -> Any:
    """The object itself, built with its parameters; a class without parameters is called with none."""
    if not isinstance(spec, str):
        if not callable(spec):
            raise InputError(f"{kind}: expected a name or a callable, not {type(spec).__name__}")
        return _make(kind, getattr(spec, "__name__", "it"), spec, (), {}) if inspect.isclass(spec) else spec
    name, args, kwargs = parse_spec(kind, spec)
    target = name if ":" in name else known(kind).get(name)
    if target is None:
        hint = f"`kofn list {kind}s` shows them all"
        raise UnknownName(kind, name, list(known(kind)), hint=hint, also=ALSO_CALLED.get(kind))
    return _make(kind, name, _load(target, kind), args, kwargs)


def higher_is_better(name: str, metric_is: bool = True) -> bool | None:
    """Whether a larger value of an aggregator is better, given whether that of its metric is.

    None where it is neither, and where the aggregator is not one of ours: the name may come from a file of unknown
    origin, and reading it must not import code that the file names.

    >>> higher_is_better("pass@5", False), higher_is_better("mean", False), higher_is_better("redundancy")
    (True, False, None)
    """
    try:
        if parse_spec("aggregator", name)[0] not in AGGREGATORS:
            return None
        rule = aggregator(name)
    except InputError:
        return None
    return None if rule.neutral else metric_is if rule.of_values else True


def parse_spec(kind: str, spec: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Split "name(1, k=3)" into its name and its literal parameters; nothing is evaluated.

    >>> parse_spec("aggregator", "ndcg(k=3, gain='exp2')")
    ('ndcg', (), {'k': 3, 'gain': 'exp2'})
    >>> parse_spec("aggregator", "pass^3")
    ('pass_hat', (), {'k': 3})
    """
    text = spec.strip()
    if short := _AT.fullmatch(text):
        name = (
            "pass_hat" if short["sign"] == "^" and short["name"] == "pass" else SHORT.get(short["name"], short["name"])
        )
        if short["sign"] == "^" and name != "pass_hat":
            raise InputError(f"{kind} {spec!r}: only pass^k is written with ^")
        return name, (), {"k": int(short["k"])}
    match = _SPEC.fullmatch(text)
    if match is None:
        form = (
            "a number for k, as in pass@5"
            if re.fullmatch(r"[a-z_]+[@^].*", text)
            else "a name, name(key=value) or module:thing"
        )
        raise InputError(f"{kind} {spec!r}: expected {form}")
    try:
        call = ast.parse(f"f({match['args'] or ''})", mode="eval").body
        assert isinstance(call, ast.Call)
        args = tuple(ast.literal_eval(a) for a in call.args)
        kwargs = {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, AssertionError, MemoryError, RecursionError):
        raise InputError(
            f"{kind} {spec!r}: parameters must be plain values, such as ndcg(k=3) or pattern('x=(.*)')"
        ) from None
    return match["name"], args, kwargs


def load_module(path: Path, name: str) -> Any:
    """The module of a file, executed under a name, wherever the file is."""
    module = ModuleType(name)
    module.__file__ = str(path)
    SourceFileLoader(name, str(path)).exec_module(module)
    return module


def check_unique(names: Sequence[str], problem: str) -> None:
    """Refuse a name that is there twice, with a message in which {} is the name.

    >>> check_unique(["a", "b", "a"], "two sides are called {!r}")
    Traceback (most recent call last):
    kofn.errors.InputError: two sides are called 'a'
    """
    for name in names:
        if names.count(name) > 1:
            raise InputError(problem.format(name))


def _make(kind: str, name: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if not inspect.isclass(target):
        if not args and not kwargs:
            return target
        return partial(as_metric(target) if kind == "metric" else target, *args, **kwargs)
    signature = inspect.signature(target)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        takes = ", ".join(str(p) for p in signature.parameters.values()) or "no parameters"
        raise InputError(f"{kind} {name}: {problem}; it takes {takes.replace(chr(39), '')}") from None
    return target(*args, **kwargs)


def _load(target: str, kind: str) -> Any:
    module, _, attribute = target.partition(":")
    if (path := Path(module)).suffix == ".py":
        found = _module_of(path.resolve(), f"{kind} {target!r}")
        if not hasattr(found, attribute):
            raise InputError(f"{kind} {target!r}: {module} has no {attribute!r}")
        return getattr(found, attribute)
    if module.partition(".")[0] != "kofn" and "" not in sys.path:
        sys.path.append("")  # a module of the folder one is in, as `python -m` would find it
    try:
        return getattr(import_module(module), attribute)
    except ImportError as problem:
        raise InputError(f"{kind} {target!r}: cannot import {module} ({problem})") from None
    except AttributeError:
        raise InputError(f"{kind} {target!r}: {module} has no {attribute!r}") from None


@lru_cache(maxsize=64)
def _module_of(path: Path, what: str) -> ModuleType:
    """The module of a user's file, executed once; files beside it can be imported, as `python FILE` would."""
    if not path.is_file():
        raise InputError(f"{what}: there is no file {path}")
    if (folder := str(path.parent)) not in sys.path:
        sys.path.append(folder)
    name = f"{path.stem}_{abs(hash(path)):x}"  # no module of the standard library, whatever the file is called
    try:
        sys.modules[name] = module = ModuleType(name)  # as dataclasses expect of a module that runs
        module.__file__ = str(path)
        SourceFileLoader(name, str(path)).exec_module(module)
    except Exception as problem:
        del sys.modules[name]
        raise InputError(f"{what}: {path.name} cannot be imported: {type(problem).__name__}: {problem}") from problem
    return module


def _summary(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].rstrip(".")
