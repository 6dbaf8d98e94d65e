"""Reads task files of lm-evaluation-harness: the same YAML, with `repeat_aggregation` beside `metric`.

What a file asks is translated or refused, in one line that names the key. What it only grades by is translated as far
as it goes, and `notes` says what was left out.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kofn.core.warnings import CodedWarning
from kofn.core.yaml_file import Yaml
from kofn.errors import InputError, UnknownName
from kofn.extract.compatible import expressible
from kofn.registry import METRICS, aggregator, metric
from kofn.tasks.items import PlacedRecord
from kofn.tasks.spec import parse_spec
from kofn.tasks.task import REPEATS, Task

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

# how repeats are combined -> how a product uses them
_USES = {"any_pass": "any", "majority": "vote", "all_pass": "all"}
OWN_KEYS = ("repeat_aggregation", "name")  # what a metric of the list may say that lm-eval has no word for
_MARKS = {"doc_to_text", "doc_to_target", "doc_to_choice", "metric_list", "filter_list", "dataset_path"}
_KINDS = {  # keys of files that do not hold a single task
    "group": "a group of tasks: give the file of one task",
    "task_list": "a list of tasks: give the file of one task",
    "class": "a task written in Python: run it with lm-eval, and give its samples to kofn score",
}
_METRIC_KEYS = {"metric", "aggregation", "higher_is_better", "hf_evaluate", "weight", *OWN_KEYS}
_NEAR = 0.8  # similarity from which on an unknown key is taken for a typing mistake; others are left to lm-eval
_OF_OPTIONS = {"acc": "choice"}
OVER_CASES = {"f1", "mcc", "perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte", "brier_score", "bleu"}
OVER_CASES |= {"chrf", "ter", "acc_norm", "acc_bytes", "acc_mutual_info", "likelihood"}
_CHANGES = ("process_docs", "process_results", "use_prompt", "gen_prefix", "doc_to_image", "doc_to_audio")
_KEYS = {
    *(*_MARKS, *_CHANGES, "task", "task_alias", "tag", "include", "dataset_name", "dataset_kwargs", "custom_dataset"),
    *("training_split", "validation_split", "test_split", "fewshot_split", "fewshot_config", "fewshot_delimiter"),
    *("num_fewshot", "target_delimiter", "description", "output_type", "generation_kwargs", "repeats", "metadata"),
    *("should_decontaminate", "doc_to_decontamination_query", "unsafe_code"),
}
_SAMPLING = {"until", "max_gen_toks", "temperature", "top_p", "do_sample"}
_OUTPUTS = ("generate_until", "multiple_choice")
_PLAIN = ("json", "csv", "parquet")
_SEED = 1234  # of lm-eval's few-shot examples
TEXT, TARGET, CHOICE = "doc_to_text", "doc_to_target", "doc_to_choice"


class Function(str):
    """The name behind `!function`: code beside the file that names it, which is not run here."""

    __slots__ = ("folder",)
    folder: Path

    @classmethod
    def beside(cls, folder: Path, name: str) -> Function:
        """A name in a file of this folder."""
        found = cls(name)
        found.folder = folder
        return found


class MetricEntry(NamedTuple):
    """One metric of `metric_list`: what results call it, how repeats become one value, and the metric here (`spec`)."""

    name: str
    metric: str
    repeat_aggregation: str
    spec: str | None
    weight: float = 1.0
    settings: Mapping[str, Any] = MappingProxyType({})
    higher_is_better: bool = True


def is_lm_eval(value: Any) -> bool:
    """Whether a task file is one of lm-eval.

    >>> is_lm_eval({"task": "t", "doc_to_text": "{{q}}"}), is_lm_eval({"name": "t", "dataset": "d.jsonl"})
    (True, False)
    """
    return isinstance(value, dict) and "dataset" not in value and bool((_MARKS | _KINDS.keys()) & value.keys())


def read_config(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """What a task file says, with the files it includes."""
    if path in seen:
        raise InputError(f"{path}: include: the file includes itself")
    value = Yaml(path, tags={"!function": partial(Function.beside, path.parent)}).value
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a mapping")
    _check_keys(value, _KEYS, str(path))
    for key, what in _KINDS.items():
        if key in value and not _MARKS & value.keys():
            raise InputError(f"{path}: {key}: {what}")
    included = value.pop("include", [])
    merged: dict[str, Any] = {}
    for name in included if isinstance(included, list) else [included]:
        other = path.parent / str(name)
        if not other.exists():
            raise InputError(f"{path}: include: {other}: no such file")
        merged |= read_config(other, (*seen, path))
    return merged | value


def _check_keys(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse a key that is nearly a known one: lm-eval would refuse it too, or hand it to a function as a setting."""
    for key in map(str, given):
        if key not in known and get_close_matches(key, known, cutoff=_NEAR):
            raise InputError(f"{where}: {UnknownName('key', key, sorted(known))}")


def metric_entries(config: Mapping[str, Any], source: str) -> list[MetricEntry]:
    """The metrics of a task, each with how its repeats become one value: the first, unless the file says otherwise.

    Two entries of one metric need two names; an unknown aggregator is an error.
    """
    listed = config.get("metric_list")
    if listed is None:
        listed = [{"metric": "acc" if config.get("output_type") == "multiple_choice" else "exact_match"}]
    if not isinstance(listed, list):
        raise InputError(f"{source}: metric_list: expected a list")
    found: list[MetricEntry] = []
    for at, given in enumerate(listed):
        entry = _entry(given, f"{source}: metric_list.{at}", config)
        if entry.name in (e.name for e in found):
            raise InputError(f"{source}: metric_list.{at}: two metrics are named {entry.name!r}: add `name:` to one")
        found.append(entry)
    return found


def _entry(given: Any, where: str, config: Mapping[str, Any]) -> MetricEntry:
    if not isinstance(given, dict) or not isinstance(given.get("metric"), str):
        raise InputError(f"{where}: expected a mapping with `metric`")
    _check_keys(given, _METRIC_KEYS, where)
    metric = given["metric"]
    repeat = given.get("repeat_aggregation")
    if repeat is not None and not isinstance(repeat, str):
        raise InputError(f"{where}: repeat_aggregation: expected a name such as majority")
    rule = REPEATS.get(repeat or "first", repeat or "first")
    try:
        aggregator(rule)
    except InputError as problem:
        raise InputError(f"{where}: repeat_aggregation: {problem}") from None
    name = str(given.get("name", metric.rpartition(".")[2] if isinstance(metric, Function) else metric))
    weight = given.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise InputError(f"{where}: weight: expected a number, found {weight!r:.40}")
    settings = {key: value for key, value in given.items() if key not in _METRIC_KEYS}
    spec = None if isinstance(metric, Function) else _metric(metric, settings, config)
    return MetricEntry(name, metric, rule, spec, float(weight), settings, given.get("higher_is_better") is not False)


def _metric(name: str, settings: Mapping[str, Any], config: Mapping[str, Any]) -> str | None:
    """The metric of this name and these settings; None where there is none."""
    if name in _OF_OPTIONS and config.get("output_type") == "multiple_choice":
        return _OF_OPTIONS[name]
    if name not in METRICS or name in OVER_CASES:
        return None
    inside = ", ".join(f"{key}={tuple(v) if isinstance(v, list) else v!r}" for key, v in settings.items())
    spec = f"{name}({inside})" if settings else name
    try:
        metric(spec)
    except InputError:
        return None
    return spec


def extraction(config: Mapping[str, Any]) -> tuple[str | None, list[CodedWarning]]:
    """The extractor that the first filter amounts to, and notes on what was left out; no filter: the whole response."""
    filters = config.get("filter_list")
    if not isinstance(filters, list) or not filters:
        return ("text" if config.get("output_type", "generate_until") == "generate_until" else None), []
    notes, name = [], str(filters[0].get("name"))
    if len(filters) > 1:
        notes.append(CodedWarning.of("task-part-left-out", about="filters", n=len(filters), filter=name))
    steps = filters[0].get("filter") or []
    if strange := [s.get("function") if isinstance(s, dict) else s for s in steps if not expressible(s)]:
        function = str(strange[0])
        notes.append(CodedWarning.of("task-part-left-out", about="unknown-filter", filter=name, function=function))
        return None, notes
    own = []
    for step in steps:
        if step["function"] in ("majority_vote", "take_first_k"):
            notes.append(CodedWarning.of("task-part-left-out", about="set-filter", filter=step["function"]))
        elif step["function"] != "take_first":
            own.append(step)
    if not own:
        return "text", notes
    regex, select = str(own[0].get("regex_pattern", "")), own[0].get("group_select", 0)
    if len(own) == 1 and own[0]["function"] == "regex" and regex and select in (0, -1):
        groups = re.compile(regex).groups
        if groups < 2:
            return f"pattern({regex!r}, group={groups}, take={'first' if select == 0 else 'last'!r})", notes
    return f"lm_eval_filter({own!r})", notes


@dataclass(frozen=True, kw_only=True)
class LmEvalTask(Task):
    """A task whose records are rendered by the templates of an lm-eval file."""

    templates: Mapping[str, Any] = field(default_factory=dict)
    refused: str | None = None

    def prepare_record(self, placed: PlacedRecord) -> PlacedRecord:
        """A record with its question, its reference and its options."""
        if self.refused:
            raise InputError(self.refused)
        try:
            return PlacedRecord(placed.where, {**placed.record, **_Documents(self.templates).render(placed.record)})
        except InputError as problem:
            raise InputError(f"{placed.where}: {problem}") from None

    def locate_data(self, data: Path | None = None) -> Path | None:
        """The file of the data."""
        if self.refused:
            raise InputError(self.refused)
        return super().locate_data(data)

    def fingerprint(self) -> str:
        """What is asked and how it is graded: the templates too."""
        from hashlib import sha256

        templates = "\x00".join(f"{key}={self.templates[key]}" for key in sorted(self.templates))
        return sha256(f"{super().fingerprint()}{templates}".encode()).hexdigest()[:16]


class _Documents:
    """Templates of a task file, applied to records as lm-eval does: a field by its name, else Jinja."""

    def __init__(self, templates: Mapping[str, Any]) -> None:
        self.templates = templates

    def render(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """`doc_to_text`, `doc_to_target` and `doc_to_choice` of a record."""
        text, target, choices = self._text(TEXT, record), self._value(TARGET, record), self._choices(record)
        if choices is None:
            return {TEXT: text, TARGET: target if isinstance(target, list) else str(target)}
        found = []
        for one in target if isinstance(target, list) else [target]:  # the right option: places from 0, or texts
            is_place = isinstance(one, int) and not isinstance(one, bool)
            if is_place and not 0 <= one < len(choices):
                raise InputError(f"{TARGET}: {one} is no place among {len(choices)} options")
            found.append(choices[one] if is_place else str(one))
        return {TEXT: text, CHOICE: choices, TARGET: found}

    @cached_property
    def environment(self) -> Any:
        """Jinja as lm-eval sets it up, but in a sandbox: a task file is somebody else's text."""
        from jinja2 import StrictUndefined
        from jinja2.sandbox import SandboxedEnvironment

        found = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
        found.filters["regex_replace"] = lambda text, pattern, repl, count=0: re.sub(pattern, repl, text, count=count)
        return found

    def _text(self, key: str, record: Mapping[str, Any]) -> str:
        template = self.templates[key]
        if template in record:
            return str(record[template])
        import jinja2

        try:
            return str(self.environment.from_string(str(template)).render(**record))
        except jinja2.TemplateError as problem:
            raise InputError(f"{key}: {' '.join(str(problem).split())}") from None

    def _value(self, key: str, record: Mapping[str, Any]) -> Any:
        """A field as it is; else text, in which a number or a list may be written."""
        template = self.templates[key]
        if isinstance(template, (int, list)):
            return template
        if template in record:
            return record[template]
        text = self._text(key, record)
        # lm-eval takes digits for the place of an option only where there are options; else they are the answer
        if text.isdecimal() and self.templates.get(CHOICE) is not None:
            return int(text)
        if text.startswith("[") and text.endswith("]"):
            with suppress(SyntaxError, ValueError):
                return ast.literal_eval(text)
        return text

    def _choices(self, record: Mapping[str, Any]) -> list[str] | None:
        template = self.templates.get(CHOICE)
        if template is None:
            return None
        found = list(template.values()) if isinstance(template, dict) else self._value(CHOICE, record)
        if not isinstance(found, (list, tuple)):
            raise InputError(f"{CHOICE}: expected a list of options, found {str(found)[:40]!r}")
        return [str(option) for option in found]


def task_of(config: Mapping[str, Any], source: str, folder: Path | None = None) -> LmEvalTask:
    """The task of an lm-eval file. What kofn cannot ask is refused when the task is run, so that it can still grade."""
    metrics = metric_entries(config, source)
    extract, notes = extraction(config)
    known = [e for e in metrics if e.spec is not None]
    if left := tuple(dict.fromkeys(e.metric for e in metrics if e.spec is None)):
        notes.append(CodedWarning.of("task-part-left-out", about="metrics", metrics=left))
    refused = next(_refusals(config, source, known=bool(known)), None)
    kind = config.get("output_type", "generate_until")
    body: dict[str, Any] = {
        "name": re.sub(r"[^\w.-]+", "_", str(config.get("task", "task"))),
        "output_type": "generate_until" if refused and kind not in _OUTPUTS else kind,
        "repeats": config.get("repeats", 1),
        "metrics": [{"metric": m} for m in dict.fromkeys(e.spec for e in known)],
        "aggregate": list(dict.fromkeys(["first", "mean", *(e.repeat_aggregation for e in metrics)])),
        "use": _USES.get(metrics[0].repeat_aggregation) if metrics else None,
        "dataset": {"records": []},
        "fields": {"question": TEXT, "reference": TARGET, **({"choices": CHOICE} if config.get(CHOICE) else {})},
        "stages": [{"name": "answer", **({} if refused else _stage(config))}],
        "multiple_choice": {"list_options": False},  # doc_to_text lists them itself where they are wanted
    }
    if extract is not None and body["output_type"] == "generate_until":
        body["extract"] = extract
    if not refused and config["dataset_path"] in _PLAIN:
        body["dataset"] = {"path": _path(_files(config)[str(_split(config))], folder)}
    elif not refused:
        named = {"hf": config["dataset_path"], "split": _split(config) or "test"}
        body["dataset"] = named | ({"config": config["dataset_name"]} if config.get("dataset_name") else {})
    if not refused and config.get("num_fewshot"):
        found = _examples(config)
        samples = isinstance(found, list) and all(isinstance(one, dict) for one in found)
        first = (config.get("fewshot_config") or {}).get("sampler") == "first_n"
        shots = found if samples else _path(found, folder)
        body["fewshot"] = {"count": config["num_fewshot"], "source": shots, **({} if first else {"seed": _SEED})}
    spec = parse_spec({k: v for k, v in body.items() if v is not None}, source)
    templates = {key: config[key] for key in (TEXT, TARGET, CHOICE) if config.get(key) is not None}
    return LmEvalTask(spec=spec, folder=folder, source=source, templates=templates, refused=refused, notes=tuple(notes))


def _refusals(config: Mapping[str, Any], source: str, *, known: bool) -> Iterator[str]:
    """What a file says that kofn cannot ask, one message each."""

    def line(key: str, what: str) -> str:
        return f"{source}: {key}: {what}"

    for key in _CHANGES:
        if config.get(key) is not None:
            yield line(key, "not translated: run this task with lm-eval, and give its samples to kofn score")
    for key in (TEXT, TARGET, CHOICE, "custom_dataset"):
        if isinstance(config.get(key), Function):
            yield line(key, "!function is code of the task: write a Jinja template, or run it with lm-eval")
    if (kind := config.get("output_type", "generate_until")) not in _OUTPUTS:
        yield line("output_type", f"{kind} is not translated: expected generate_until or multiple_choice")
    if kind == "multiple_choice" and config.get(CHOICE) is None:
        yield line(CHOICE, "missing: multiple_choice needs its options")
    for key in (TEXT, TARGET):
        if config.get(key) is None:
            yield line(key, "missing: expected a field or a Jinja template")
    if (path := config.get("dataset_path")) is None:
        yield line("dataset_path", "missing: expected json, csv or parquet with data_files, or a Hugging Face id")
    elif path in _PLAIN:
        found = _files(config).get(split := str(_split(config)))
        if not isinstance(found, str) and not (isinstance(found, list) and len(found) == 1):
            what = f"dataset_kwargs.data_files has no file for the split {split}: expected one path"
            yield line("dataset_path", what)
    for key in config.get("generation_kwargs") or {}:
        if key not in _SAMPLING:
            yield line(f"generation_kwargs.{key}", "not translated: expected " + ", ".join(sorted(_SAMPLING)))
    shots = config.get("num_fewshot") or 0
    if config.get("target_delimiter", " ") != " " and (shots or kind == "multiple_choice"):
        yield line("target_delimiter", "not translated: answers follow a space here")
    if config.get("fewshot_delimiter", "\n\n") != "\n\n" and shots:
        yield line("fewshot_delimiter", "not translated: examples are apart by an empty line here")
    if shots and _examples(config) is None:
        yield line("fewshot_split", "no examples: expected a split of data_files, or samples in fewshot_config")
    if not known:
        yield line("metric_list", "no metric of single answers that is known here: `kofn list metrics`")


def _files(config: Mapping[str, Any]) -> dict[str, Any]:
    """Split -> file, of local data."""
    given = (config.get("dataset_kwargs") or {}).get("data_files")
    if isinstance(given, dict):
        return given
    return {} if given is None else {"train": given}


def _split(config: Mapping[str, Any]) -> str | None:
    return config.get("test_split") or config.get("validation_split")


def _path(given: Any, folder: Path | None) -> str:
    """A file of the data: beside the task file, or where lm-eval looks for it, in the folder one is in."""
    name = given[0] if isinstance(given, list) else given
    beside = (folder or Path()) / name
    return str(name if beside.exists() or not Path(name).exists() else Path(name).resolve())


def _stage(config: Mapping[str, Any]) -> dict[str, Any]:
    given = dict(config.get("generation_kwargs") or {})
    description = str(config.get("description") or "").replace("{", "{{").replace("}", "}}")
    out: dict[str, Any] = {"prompt": f"{description}{{question}}"}
    stop = given.get("until", [config.get("fewshot_delimiter", "\n\n")])
    out["stop"] = [stop] if isinstance(stop, str) else list(stop)
    out["max_tokens"] = int(given.get("max_gen_toks", 256))
    # as lm-eval: greedy, unless the file asks for sampling or names a temperature
    if given.get("do_sample") is False or not given or ("temperature" not in given and not given.get("do_sample")):
        out["temperature"] = 0.0
    elif "temperature" in given:
        out["temperature"] = float(given["temperature"])
    return out | ({"top_p": float(given["top_p"])} if "top_p" in given else {})


def _examples(config: Mapping[str, Any]) -> Any:
    """Where few-shot examples come from: samples in the file, or a split."""
    samples = (config.get("fewshot_config") or {}).get("samples")
    if isinstance(samples, list):
        return samples
    split = config.get("fewshot_split") or config.get("training_split") or config.get("validation_split")
    found = _files(config).get(str(split))
    return found if isinstance(found, (str, list)) else None
