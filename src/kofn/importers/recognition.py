"""Tells whose files are to be read, by their content: `Peek`, the views of a file, and a function for each tool."""

from __future__ import annotations

import re
import zipfile
from functools import cached_property
from typing import TYPE_CHECKING, Any

import orjson

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HEAD = 1 << 16  # bytes by which most tools' files are recognised
_LINE = 64 << 20  # the longest first line that is read to recognise a file
_DOCUMENT = 4 << 30  # `Peek.document` reads the whole file into memory


class Peek:
    """A file or folder about to be read. Each view of it is computed when first needed, and once.

    path      where it is: decompressed and local by now
    source    what to call it in messages
    """

    def __init__(self, path: Path, source: str | None = None) -> None:
        self.path, self.source = path, source or str(path)

    @cached_property
    def head(self) -> bytes:
        """The first bytes; none of a folder."""
        if self.path.is_dir():
            return b""
        with self.path.open("rb") as file:
            return file.read(_HEAD)

    @cached_property
    def start(self) -> bytes:
        """The first bytes without a byte order mark and blanks before them."""
        return self.head.removeprefix(b"\xef\xbb\xbf").lstrip()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The entries of a folder or of a zip archive; empty for any other file, and for a broken archive."""
        if self.path.is_dir():
            return tuple(sorted(entry.name for entry in self.path.iterdir()))
        if not self.head.startswith(b"PK\x03\x04"):
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return tuple(archive.namelist())
        except (zipfile.BadZipFile, NotImplementedError, OSError):
            return ()

    @cached_property
    def columns(self) -> Mapping[str, Any]:
        """Column -> polars type of a Parquet file; empty for any other."""
        if not self.head.startswith(b"PAR1"):
            return {}
        import polars as pl

        try:
            return dict(pl.read_parquet_schema(self.path))
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError):
            return {}

    @cached_property
    def first(self) -> dict[str, Any] | None:
        """The first line as a JSON object; None where it is not one."""
        if not self.start.startswith(b"{"):
            return None
        with self.path.open("rb") as file:
            for line in iter(lambda: file.readline(_LINE), b""):
                if text := line.removeprefix(b"\xef\xbb\xbf").strip():
                    return _object(text)
        return None

    @cached_property
    def document(self) -> dict[str, Any] | None:
        """The whole file as one JSON object; None where it is not one, such as JSON lines."""
        if not self.start.startswith(b"{"):
            return None
        if self.first is not None:
            with self.path.open("rb") as file:
                lines = (line for line in iter(lambda: file.readline(_LINE), b"") if line.strip())
                next(lines, None)
                return self.first if next(lines, None) is None else None
        if self.path.stat().st_size > _DOCUMENT:
            raise InputError(f"{self.source}: one JSON document of more than {_DOCUMENT >> 30} GiB: split it")
        return _object(self.path.read_bytes().removeprefix(b"\xef\xbb\xbf"))


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


# --- EvalPlus

_EVALPLUS_SAMPLE = frozenset({"task_id", "solution", "completion", "_identifier"})
_EVALPLUS_RESULTS = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:date|hash|eval)"')
EVALPLUS_FOLDER = re.compile(r"(HumanEval|Mbpp)_\d+")


def is_evalplus(peek: Peek) -> bool:
    """A line has task_id and solution and nothing else; a document has `eval`; a folder has one for each task."""
    if peek.path.is_dir():
        return any(EVALPLUS_FOLDER.fullmatch(name) and (peek.path / name).is_dir() for name in peek.names)
    first = peek.first
    if first is not None and {"task_id", "solution"} <= set(first) <= _EVALPLUS_SAMPLE:
        return True
    if b'"base_status"' not in peek.head and b'"nfiles"' not in peek.head:
        return False
    if first is not None:
        return "eval" in first
    return _EVALPLUS_RESULTS.match(peek.head) is not None  # over several lines, or cut off


# --- HELM

HELM_STATE = "scenario_state.json"
_HELM_STATES = re.compile(rb'"request_states"\s*:\s*\[')


def is_helm(peek: Peek) -> bool:
    """A folder with scenario_state.json, or a document with an adapter's spec and request states."""
    if HELM_STATE in peek.names and peek.path.is_dir():
        return True
    start = peek.start
    return start.startswith(b"{") and b'"adapter_spec"' in start and bool(_HELM_STATES.search(start))


# --- Hugging Face datasets

_SHARD_ENDS = (".arrow", ".parquet")
SPLITS = {"test": 0, "validation": 1, "valid": 1, "val": 1, "dev": 1, "train": 2}
_SPLIT_NAMES = "|".join(SPLITS)
# train.parquet, train-00000-of-00004.parquet, NAME-train-00000-of-00004-0123abcd.parquet
SHARD = re.compile(rf"(?:.*-)?(?P<split>{_SPLIT_NAMES})(?:-(?P<at>\d+)-of-(?P<of>\d+))?(?:-[0-9a-f]+)?")
ARROW_STARTS = (b"\xff\xff\xff\xff", b"ARROW1")  # the beginnings of its two forms: a stream, a file
_NUMBERED_SHARD = re.compile(r"(?:data-)?(?P<at>\d+)(?:-of-(?P<of>\d+))?")


def is_hf_dataset(peek: Peek) -> bool:
    """A folder with the records that `save_to_disk` writes, or with shards named after splits; an Arrow file."""
    if not peek.path.is_dir():
        return peek.head.startswith(ARROW_STARTS)
    if "run.json" in peek.names:  # a run of ours
        return False
    if "dataset_dict.json" in peek.names or ("state.json" in peek.names and "dataset_info.json" in peek.names):
        return True
    return any(split_shards(folder) for folder in (peek.path, *visible_folders(peek)))


def visible_folders(peek: Peek) -> list[Path]:
    """The folders in a folder, without hidden ones."""
    return [peek.path / name for name in peek.names if not name.startswith(".") and (peek.path / name).is_dir()]


def split_shards(folder: Path) -> dict[Path, str]:
    """File -> split: shards named after a split, or numbered ones in a folder that is."""
    shards: dict[Path, str] = {}
    try:
        paths = sorted(folder.iterdir())
    except OSError:  # not ours to read
        return shards
    for path in (path for path in paths if path.suffix in _SHARD_ENDS and path.is_file()):
        if match := SHARD.fullmatch(path.stem):
            shards[path] = match["split"]
        elif folder.name in SPLITS and _NUMBERED_SHARD.fullmatch(path.stem):
            shards[path] = folder.name
    return shards


# --- HumanEval

HUMAN_EVAL_FIELDS = frozenset({"task_id", "completion", "passed", "result", "completion_id"})


def is_human_eval(peek: Peek) -> bool:
    """A line has task_id and completion and nothing else, or was run: passed, and a result in the tool's own words."""
    first = peek.first
    if first is None or not {"task_id", "completion"} <= set(first):
        return False
    return set(first) <= HUMAN_EVAL_FIELDS or ("passed" in first and is_human_eval_result(first.get("result")))


def is_human_eval_result(value: Any) -> bool:
    """Whether a value is one that the tool writes as the result of running a completion.

    >>> [is_human_eval_result(value) for value in ("failed: name 'x' is not defined", "timed out", "42")]
    [True, True, False]
    """
    return isinstance(value, str) and (value in ("passed", "timed out") or value.startswith("failed: "))


# --- Inspect

INSPECT_HEADERS = ("header.json", "_journal/start.json")
_INSPECT_MEMBER = re.compile(rb'"(?:(version)"\s*:\s*\d|(status)"\s*:\s*"|(eval)"\s*:\s*\{|(plan)"\s*:\s*\{)')
INSPECT_SAMPLE = re.compile(r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?P<chunked>/sample)?\.json", re.DOTALL)


def is_inspect_log(peek: Peek) -> bool:
    """A zip with a header, a journal or samples, whole or not; or an object with version, status, eval and plan."""
    if peek.head.startswith(b"PK\x03\x04"):
        if peek.names:
            known = not set(peek.names).isdisjoint(INSPECT_HEADERS)
            return known or any(map(INSPECT_SAMPLE.fullmatch, peek.names))
        first = peek.head[30:120]  # the name of the first entry, where the archive lacks its directory
        return b"_journal/" in first or b"samples/" in first
    start = peek.start
    if not start.startswith(b"{"):
        return False
    found = {name for names in _INSPECT_MEMBER.findall(start) for name in names}
    if not found >= {b"version", b"eval"} or found.isdisjoint({b"status", b"plan"}) or b'"task"' not in start:
        return False
    return peek.first is None or isinstance(peek.first.get("eval"), dict)


# --- lighteval

LIGHTEVAL_COLUMNS = ("doc", "model_response", "metric")
_UNDERSCORED_COLUMNS = tuple(f"__{name}__" for name in LIGHTEVAL_COLUMNS)  # the same in versions 0.11 and 0.12
LIGHTEVAL_OLD_COLUMNS = ("full_prompt", "predictions", "metrics")


def is_lighteval(peek: Peek) -> bool:
    """Parquet with the columns of one of the forms."""
    return lighteval_columns(peek) is not None or set(LIGHTEVAL_OLD_COLUMNS) <= set(peek.columns)


def lighteval_columns(peek: Peek) -> tuple[str, ...] | None:
    """The columns of the newer forms, as this file names them; None of any other."""
    return next((names for names in (LIGHTEVAL_COLUMNS, _UNDERSCORED_COLUMNS) if set(names) <= set(peek.columns)), None)


# --- lm-evaluation-harness

_LM_EVAL_KEYS = {"doc_id", "doc", "resps", "filtered_resps"}
_LM_EVAL_RESULTS = "results*.json"


def is_lm_eval(peek: Peek) -> bool:
    """A line has doc_id, doc, resps and filtered_resps; a folder has a file of such lines.

    Results without samples are known too, so that they can be refused in words.
    """
    if peek.path.is_dir():
        if logs := lm_eval_logs(peek.path):
            return _is_lm_eval_log(logs[0])
        return any(is_lm_eval_results(Peek(path)) for path in sorted(peek.path.glob(_LM_EVAL_RESULTS))[:1])
    return _is_lm_eval_log(peek.path, peek) or is_lm_eval_results(peek)


def is_lm_eval_results(peek: Peek) -> bool:
    """Whether these are results without samples."""
    return b'"results"' in peek.head and peek.document is not None and peek.document.keys() >= {"results", "configs"}


def _is_lm_eval_log(path: Path, peek: Peek | None = None) -> bool:
    try:
        first = (peek or Peek(path)).first
    except OSError:
        return False
    return first is not None and set(first) >= _LM_EVAL_KEYS


def lm_eval_logs(folder: Path) -> list[Path]:
    """The files of samples in a folder, or in the one folder of a model inside it."""
    if logs := sorted(folder.glob("samples_*.jsonl")):
        return logs
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    return [path for one in inside for path in sorted(one.glob("samples_*.jsonl"))]


# --- NeMo-Skills

_NEMO_FIELDS = frozenset({"expected_answer", "predicted_answer", "symbolic_correct", "judgement", "judge_correct"})
_NEMO_SEED = re.compile(r"output-rs(\d+)\.jsonl")


def is_nemo_skills(peek: Peek) -> bool:
    """A line has a generation beside an expected or predicted answer or a verdict; a folder has seeds of such lines."""
    if not peek.path.is_dir():
        return _is_nemo_output(peek.first)
    try:
        seeds = nemo_seeds(peek.path)
        return bool(seeds) and _is_nemo_output(Peek(seeds[0]).first)
    except OSError:  # not ours to read
        return False


def _is_nemo_output(first: Mapping[str, Any] | None) -> bool:
    return first is not None and "generation" in first and bool(_NEMO_FIELDS & set(first))


def nemo_seeds(folder: Path) -> list[Path]:
    """The files of a folder, in the order of their seeds."""
    found = {int(match[1]): path for path in folder.iterdir() if (match := _NEMO_SEED.fullmatch(path.name))}
    return [found[seed] for seed in sorted(found)]


# --- OpenAI evals


def is_openai_evals(peek: Peek) -> bool:
    """The first line is the spec of a run."""
    spec = (peek.first or {}).get("spec")
    return isinstance(spec, dict) and "eval_name" in spec and ("run_config" in spec or "completion_fns" in spec)


# --- promptfoo

_PROMPTFOO_SUMMARY = re.compile(rb'"results"\s*:\s*\{\s*"version"\s*:\s*\d')
_PROMPTFOO_LIST = re.compile(rb'"results"\s*:\s*\[')
_PROMPTFOO_WRAPPED = re.compile(rb'"evalId"\s*:.*"results"\s*:\s*\{', re.DOTALL)
_PROMPTFOO_OWN = (b'"promptIdx"', b'"namedScores"', b'"gradingResult"')


def is_promptfoo(peek: Peek) -> bool:
    """A summary under `results`, or a list of results that have promptfoo's own fields; or such results as lines."""
    start = peek.start
    if not start.startswith(b"{"):
        return False
    if _PROMPTFOO_SUMMARY.search(start) or _PROMPTFOO_WRAPPED.search(start):
        return True
    if _PROMPTFOO_LIST.search(start) and b'"version"' in start:
        return any(name in start for name in _PROMPTFOO_OWN)
    first = peek.first
    return first is not None and {"provider", "prompt", "vars", "success"} <= set(first)
