"""What is fuzzed: every reader of something that somebody else wrote, as a callable of bytes.

A target may refuse what it is given with an `InputError`, and with nothing else: every other exception is a crash. The
same table serves three drivers: `guided.py` (atheris), `test_structured.py` (Hypothesis) and `test_corpus.py` (what
once crashed, with every `make test`).

A target of several files gets them in one piece, `SEPARATOR` between them.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ALLOWED = InputError
SEPARATOR = b"\x1d"
CHOICES = ("Paris", "London (GB)", "the answer is 3", "(b)")


@dataclass(frozen=True)
class Target:
    """A reader of bytes. `forms` names the seeds of `seeds.py` that it is meant for."""

    name: str
    call: Callable[[bytes], object]
    forms: tuple[str, ...]

    def __call__(self, data: bytes) -> None:
        """Read it; what is refused as it should be is fine."""
        try:
            self.call(data)
        except ALLOWED as problem:
            refused_well(problem)


def refused_well(problem: InputError) -> None:
    """A refusal is one line that a terminal shows as it is: no control character in it is the file's."""
    from kofn.core.escape import escape_controls

    escaped = escape_controls(str(problem))  # as the command line prints it
    assert escaped.strip(), "a refusal that says nothing"
    assert "\n" not in escaped
    assert escaped == escape_controls(escaped), f"a refusal with characters that a terminal obeys: {escaped!r}"


@cache
def root() -> Path:
    """A folder for the files of this process, in memory where there is such a place."""
    import atexit

    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="kofn-fuzz-", dir=shared if shared.is_dir() else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def written(data: bytes, *names: str) -> Iterator[Path]:
    """A folder with these files of the parts of the data; parts beyond the names are not written."""
    folder = Path(tempfile.mkdtemp(dir=root()))
    try:
        for name, part in zip(names, data.split(SEPARATOR) if len(names) > 1 else [data], strict=False):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(part)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def text(data: bytes) -> str:
    """Any text, lone surrogates among it."""
    return data.decode("utf-8", "surrogateescape" if len(data) % 7 == 3 else "replace")


# files of outputs


def imported(data: bytes, *, name: str, form: str | None = None, everything: bool = True) -> None:
    from kofn.importers import read
    from kofn.importers.base import ReadOptions

    with written(data, name) as folder:
        read([folder / name], ReadOptions(format=form, everything=everything))


def imported_folder(data: bytes, *, names: tuple[str, ...], form: str | None = None) -> None:
    from kofn.importers import read
    from kofn.importers.base import ReadOptions

    with written(data, *names) as folder:
        read([folder], ReadOptions(format=form, everything=True))


def scored(data: bytes) -> None:
    import kofn

    with written(data, "outputs.jsonl") as folder:
        kofn.score(folder / "outputs.jsonl", n_resamples=50)


def repeats(data: bytes) -> None:
    from kofn.importers import read

    with written(data, "a.jsonl", "b.jsonl") as folder:
        read(sorted(folder.iterdir()), as_repeats=True)


def replayed(data: bytes) -> None:
    from kofn.models.replay import read_stored

    with written(data, "outputs.jsonl") as folder:
        read_stored(folder / "outputs.jsonl")


# files that people write


def task(data: bytes) -> None:
    from kofn.tasks.load import read_task_file

    with written(data, "task.yaml", "questions.jsonl") as folder:
        found = read_task_file(folder / "task.yaml")
        items = getattr(found, "items", None)
        if callable(items):
            items()


def problem(data: bytes) -> None:
    from kofn.problems.load import load_problem
    from kofn.problems.problem import lint

    names = ("config.yaml", "one/config.yaml", "one/group/cases.yaml", "one/other/cases.jsonl")
    with written(data, *names) as folder:
        lint(load_problem(folder))


def rubric(data: bytes) -> None:
    from kofn.judge.rubric import load_rubric

    with written(data, "rubric.yaml") as folder:
        found = load_rubric(folder / "rubric.yaml")
        found.prompt_sha256(), found.passing, found.names


def selector(data: bytes) -> None:
    from kofn.analysis.selector_file import load_selector

    with written(data, "selector.yaml") as folder:
        load_selector(str(folder / "selector.yaml"))


def prices(data: bytes) -> None:
    from kofn.generate.pricing import read_prices

    with written(data, "prices.yaml") as folder:
        read_prices(folder / "prices.yaml")


def labels(data: bytes) -> None:
    from kofn.judge.labels import read_judge_rows, read_labels

    with written(data, "labels.csv") as folder:
        for read_task_file in (read_labels, read_judge_rows, partial(read_labels, threshold=0.5)):
            try:
                read_task_file(folder / "labels.csv")
            except InputError as problem:
                refused_well(problem)


# what kofn itself wrote, and somebody may have changed


def run_directory(data: bytes) -> None:
    """A good run of which some of the files are replaced by what is given."""
    from kofn.runs.index import load_stored
    from kofn.runs.record import load_run

    names = ("run.json", "evaluation.json", "results.jsonl", "candidates.parquet", "cases.parquet", "reports.parquet")
    with written(b"", "nothing") as folder:
        shutil.copytree(good_run(), folder / "run")
        for name, part in zip(names, data.split(SEPARATOR), strict=False):
            if part:
                (folder / "run" / name).write_bytes(part)
        for load in (load_run, load_stored):
            try:
                load(folder / "run")
            except InputError as problem:
                refused_well(problem)


@cache
def good_run() -> Path:
    from tests.viewer.runs import small_rows, write

    return write(root() / "run", small_rows(4))


def progress(data: bytes) -> None:
    from kofn.generate.progress_file import NAME, read_progress

    with written(data, NAME) as folder:
        read_progress(folder)


# texts of models


def extracted(data: bytes, *, name: str) -> None:
    from kofn.registry import extractor

    found = extractor(name)
    said = text(data)
    for answer in (found(said), found(said, CHOICES)):
        assert answer is None or isinstance(answer, str)


def by_column(data: bytes) -> None:
    """A column of texts says of each what the extractor says of it alone."""
    import polars as pl

    from kofn.extract import boxed, extract_column, letter, math, number

    texts = [part.decode("utf-8", "replace") for part in data.split(b"\n\n")][:8]
    for one in (boxed, letter, math, number):
        assert extract_column(one, pl.Series(texts)).to_list() == [one(each) for each in texts], one


def located(data: bytes) -> None:
    from kofn.extract.answer_spans import locate

    said, _, answer = text(data).rpartition("\n")
    for sought in (answer, "7", "B"):
        if sought and (span := locate(said, sought)) is not None:
            assert 0 <= span[0] < span[1] <= len(said), span


def numbers(data: bytes) -> None:
    from kofn.core.numbers import canonical_number, normalize_numeric, numbers_equal, parse_number, plain_characters

    said = text(data)
    parse_number(said), normalize_numeric(said), plain_characters(said), numbers_equal(said, "7", relative=0.1)
    canonical = canonical_number(said)
    assert canonical is None or canonical_number(canonical) == canonical


def verdicts(data: bytes) -> None:
    from kofn.judge.rubric import load_rubric, parse_verdict
    from kofn.judge.rubric import names as rubrics

    for name in rubrics():
        one = load_rubric(name)
        for rule in ("label", "json"):
            found = parse_verdict(text(data), one.model_copy(update={"parse": rule}))
            assert found is None or -1 <= found <= one.bounds[1]


def metrics(data: bytes) -> None:
    """Every metric on an output and a reference."""
    from kofn.registry import metric

    output, _, reference = text(data).partition("\n")
    for name in ("exact_match", "numeric", "choice", "contains", "token_f1", "rouge_l", "json_equal", "refused"):
        metric(name)(output[:2000], reference[:2000])


def matched(data: bytes, *, name: str) -> None:
    """What a program did against what its author expects: any bytes are right or wrong."""
    from kofn.problems.matchers import matcher

    expected, _, actual = data.partition(b"\n--\n")
    matcher(name)({"type": "object"} if name == "schema" else "0" * 64 if name == "hash" else b"[1, 2]", actual)
    matcher(name)(expected.decode("utf-8", "replace"), actual)


# replies of servers


def reply(data: bytes, *, vendor: str) -> None:
    """A body of a server, good or not: replies, or one of the failures that the runner knows."""
    import asyncio

    from kofn.models.base import Message, Request, RequestRejected, RetryableError, Sampling

    model = _model(vendor)
    prompts = ((Message("user", "2+2?"),),) if vendor == "anthropic" else ((Message("user", "2+2?"),), "2+2?")

    async def ask() -> None:
        for prompt in prompts:
            try:
                async for one in model.generate([Request(prompt=prompt, n=2, sampling=Sampling(stop=(" ",)))]):
                    assert isinstance(one.text, str)
                    one.text.encode()
                    (one.reasoning or "").encode()
            except (RetryableError, RequestRejected) as problem:
                assert str(problem).isprintable(), problem

    status, _, body = data.partition(b"\n")
    _answer_with(model, body, int(status) if status in (b"400", b"401", b"404", b"429", b"500") else 200)
    asyncio.run(ask())


@cache
def _model(vendor: str) -> Any:
    from kofn.models import open_model

    return open_model(f"{vendor}:m@http://127.0.0.1:9/v1")


def _answer_with(model: Any, body: bytes, status: int) -> None:
    """Let the client's connection give this body: everything behind it is the client's own work."""

    class Response:
        def __init__(self) -> None:
            self.status, self.headers, self.content_length = status, {"Retry-After": "1"}, len(body)
            self.content = self

        async def read(self, _n: int = -1) -> bytes:
            return body

        async def iter_any(self) -> Any:
            yield body

        async def __aenter__(self) -> Any:
            return self

        async def __aexit__(self, *_: object) -> None:
            return None

    class Session:
        def post(self, *_: object, **__: object) -> Any:
            return Response()

    class Sessions(dict[Any, Any]):
        def get(self, *_: object) -> Any:
            return Session()

    model._client._sessions = Sessions()


# what people type


def specs(data: bytes) -> None:
    """Names with parameters, of every kind, without a path to code of the user's own."""
    from kofn import registry

    said = text(data)
    if ":" in said.partition("(")[0] or ":" in said:  # my_pkg.module:thing is imported, which is its meaning
        return
    for kind in (registry.aggregator, registry.extractor, registry.metric):
        try:
            kind(said)
        except InputError as problem:
            refused_well(problem)


def typed(data: bytes) -> None:
    """--require, --split, --field, --where, a selector, an address of a sink or a model, the parts of a path."""
    import click

    from kofn.analysis.selector_file import load_selector
    from kofn.cli.verb_options import parse_pairs
    from kofn.core.escape import redact_address
    from kofn.core.fields import parse_field_options
    from kofn.extract import JsonField
    from kofn.models.http_client import Vendor, find_address
    from kofn.problems.matchers.json_data import parse_path
    from kofn.scoring.configuration import Requirement
    from kofn.scoring.splits import Split
    from kofn.tasks.stages import Template

    vendor = Vendor("openai", "https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL")
    said = text(data)
    readers: list[Callable[[str], object]] = [
        Requirement.parse,
        Requirement.of_verdict,
        Split.parse,
        lambda t: parse_field_options(t.split("\n")),
        JsonField,
        lambda t: parse_path(t, "ignore"),
        Template,
        redact_address,
        lambda t: find_address(t, vendor, {"OPENAI_API_KEY": "k"}),
        lambda t: None if t.lower().endswith((".yaml", ".yml")) else load_selector(t),
    ]
    for read_task_file in readers:
        try:
            read_task_file(said)
        except InputError as problem:
            assert str(problem).strip()
    try:
        parse_pairs("--where", "FIELD=VALUE", said.split("\n"))
    except click.UsageError as problem:
        assert problem.message


def asked_page(data: bytes) -> None:
    """A path and a query of the viewer: an answer, and never a failure of the server."""
    import asyncio

    path, _, query = data.partition(b"?")
    status = asyncio.run(_status(_viewer(), b"/" + path.lstrip(b"/"), query))
    assert status < 500, f"the viewer failed with {status}"


@cache
def _viewer() -> Any:
    from kofn.viewer.server import make_app

    return make_app(good_run().parent)


async def _status(app: Any, path: bytes, query: bytes) -> int:
    """The status of one GET, asked of the application itself."""
    from urllib.parse import unquote_to_bytes

    status = 0
    waiting = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        return next(waiting, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path,
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:8000")],
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return status


# the table

HELM = ("scenario_state.json", "per_instance_stats.json", "run_spec.json")
LM_EVAL = ("samples_sums_2026-01-01T00-00-00.000000.jsonl", "results_2026-01-01T00-00-00.000000.json")
NEMO = ("output-rs0.jsonl", "output-rs1.jsonl")
HF = ("dataset_info.json", "state.json", "data-00000-of-00001.arrow")
EXTRACTORS = (
    *("letter", "letter_word_boundary", "letter_first", "number", "number_anchor", "number_simple", "boxed", "math"),
    *("text", "last_line", "strip_reasoning", "json_field", "json_field(path='[0].a')", "pattern('got (.*)')", "none"),
)
MATCHERS = ("exact", "stripped", "lines", "contains", "number", "json", "table", "hash")


def _table() -> Iterator[Target]:
    yield Target("importer-any", partial(imported, name="outputs"), ("*",))
    for form, name in (
        *(("jsonl", "o.jsonl"), ("csv", "o.csv"), ("parquet", "o.parquet"), ("lm_eval", LM_EVAL[0])),
        *(("evalplus", "samples_eval_results.json"), ("human_eval", "samples.jsonl"), ("inspect", "log.eval")),
        *(("promptfoo", "export.json"), ("openai_evals", "log.jsonl"), ("helm", HELM[0]), ("nemo_skills", NEMO[0])),
        *(("lighteval", "details_a|b|0_2025.parquet"), ("hf_dataset", HF[2])),
    ):
        yield Target(f"importer-{form}", partial(imported, name=name, form=form), (form,))
    for form, names in (("helm", HELM), ("lm_eval", LM_EVAL), ("nemo_skills", NEMO), ("hf_dataset", HF)):
        yield Target(f"folder-{form}", partial(imported_folder, names=names, form=form), (f"folder-{form}",))
    yield Target("score", scored, ("jsonl",))
    yield Target("repeats", repeats, ("repeats",))
    yield Target("replay", replayed, ("jsonl",))
    yield Target("task", task, ("task", "lm_eval_task"))
    yield Target("problem", problem, ("problem",))
    yield Target("rubric", rubric, ("rubric",))
    yield Target("selector", selector, ("selector",))
    yield Target("prices", prices, ("prices",))
    yield Target("labels", labels, ("labels",))
    yield Target("run", run_directory, ("run",))
    yield Target("progress", progress, ("progress",))
    for name in EXTRACTORS:
        yield Target(
            f"extract-{name.partition('(')[0]}{'-list' if '[' in name else ''}",
            partial(extracted, name=name),
            ("text",),
        )
    yield Target("extract-column", by_column, ("text",))
    yield Target("locate", located, ("text",))
    yield Target("numbers", numbers, ("number",))
    yield Target("verdict", verdicts, ("verdict",))
    yield Target("metrics", metrics, ("text",))
    for name in MATCHERS:
        yield Target(f"match-{name}", partial(matched, name=name), ("match",))
    yield Target("reply-openai", partial(reply, vendor="openai"), ("openai",))
    yield Target("reply-anthropic", partial(reply, vendor="anthropic"), ("anthropic",))
    yield Target("specs", specs, ("spec",))
    yield Target("typed", typed, ("typed",))
    yield Target("viewer", asked_page, ("address",))


TARGETS = {target.name: target for target in _table()}
