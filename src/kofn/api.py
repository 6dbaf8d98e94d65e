"""The Python front door: score what you have, aggregate one set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from kofn.evaluate import Result
    from kofn.importers.rows import ReadOptions
    from kofn.table import Table

Spec = str | Callable[..., Any]


def score(
    data: Any,
    *,
    extract: Spec | None = None,
    metric: Spec | Sequence[Spec] = (),
    aggregate: Spec | Sequence[Spec] = (),
    threshold: float | None = None,
    top_k: int | None = None,
    interval: str = "auto",
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    by: str | Sequence[str] = (),
    cluster: str | None = None,
    weight: str | None = None,
    fields: Mapping[str, str] | None = None,
    everything: bool = False,
    engine: Any = None,
    use: str | None = None,
    split: str | None = None,
    as_repeats: bool = False,
    format: str | None = None,  # noqa: A002 - the word for it
    where: Mapping[str, str] | None = None,
    part_size: int | Literal["auto"] | None = None,
    on_part: Callable[[int, int], None] | None = None,
) -> Result:
    """Score outputs: a path or paths, rows as mappings (long, wide or groups), or a polars frame of the long form.

    A path is a file in any form kofn reads (`kofn list importers`), a pattern, a folder, a run, "-" or an address.

    `aggregate`, `metric` and `extract` take names, specs such as "pass@5", or your own callables; `metric` also takes
    functions of `references, predictions` and objects that have `compute`. `fields` names roles the file calls
    otherwise, such as {"text": "reply"}. `everything` also keeps fields no number needs. `engine` (of
    `kofn.engine.engine`) calls metrics of your own on several processes or machines. `use` says how outputs are used
    (any, vote, select, list, all), for the checklist; `split` takes design or test cases, such as "test:0.3".
    `as_repeats`: the files are repeats of the same cases. `format` names the importer instead of looking for it;
    `where` takes only the cases whose field has a value, such as {"provider": "openai:gpt-5"}.

    `part_size` reads Parquet of the long form in parts of about so many candidates, each on a worker of `engine` where
    one is given, and keeps none of them: memory does not grow with the data, and the result has no `scored`, `table`
    or `case_values`. "auto" does so for folders of Parquet and from two million candidates on. `on_part(done, total)`
    is told after each part.

    >>> rows = [{"id": "q", "reference": "42", "outputs": ["It is 42.", "Maybe 43.", "42!"]}]
    >>> result = score(rows, aggregate=["any_pass", "majority"])
    >>> [(e.aggregator, e.point) for e in result.estimates]
    [('any_pass', 1.0), ('majority', 1.0)]
    """
    from kofn.checklist import check_use
    from kofn.evaluate import Options, evaluate
    from kofn.importers.rows import ReadOptions
    from kofn.splits import Split

    slices = _several(by)
    keep = tuple(name for name in (*slices, cluster, weight) if name is not None)
    reading = ReadOptions(fields=fields or {}, keep=keep, everything=everything, format=format, where=where or {})
    options = Options(
        extract=extract,
        metrics=_several(metric),
        aggregate=_several(aggregate),
        threshold=threshold,
        top_k=top_k,
        interval=interval,
        level=level,
        n_resamples=n_resamples,
        seed=seed,
        by=slices,
        cluster=cluster,
        weight=weight,
        engine=engine,
        use=check_use(use),
        split=None if split is None else Split.parse(split),
    )
    if part_size is not None and not as_repeats:
        from kofn.streamed import score_parts, streamable

        size = None if part_size == "auto" else part_size
        if (found := streamable(_places(data), reading, size)) is not None:
            return score_parts(found, reading, options, size=size, engine=engine, on_part=on_part)
    return evaluate(load(data, reading, as_repeats=as_repeats), options)


def _places(data: Any) -> list[str]:
    """The files that are named, patterns replaced by what they match; none where data is no paths."""
    from kofn.importers.sources import expand

    several = [data] if isinstance(data, (str, Path)) else data
    named = isinstance(several, (list, tuple)) and all(isinstance(one, (str, Path)) for one in several)
    return expand(several) if named else []


def load(data: Any, options: ReadOptions, *, as_repeats: bool = False) -> Table:
    """A table from whatever `score` takes."""
    from kofn import importers

    if isinstance(data, (str, Path)):
        return importers.read([data], options, as_repeats=as_repeats, of_run=_of_run)
    if type(data).__module__.partition(".")[0] == "polars":
        return _from_frame(data, options)
    if not isinstance(data, Iterable) or isinstance(data, Mapping):
        raise InputError(f"score takes a path, rows or a frame, not {type(data).__name__}")
    rows = list(data)
    if rows and all(isinstance(row, (str, Path)) for row in rows):
        return importers.read(rows, options, as_repeats=as_repeats, of_run=_of_run)
    from kofn.importers.careful import read_records

    return read_records(rows, options)


def _of_run(path: Path) -> Table | None:
    """The outputs of a stored run, without its grades; None for any other folder."""
    from kofn.report.files import MANIFEST
    from kofn.report.run import load_run, restored

    if not (path / MANIFEST).is_file():
        return None
    run = load_run(path)
    if run.result is None:
        raise InputError(f"{path}: this run has no candidates: give one of kofn score --out, kofn run or kofn judge")
    return restored(run.result)


def aggregate(
    name: Spec,
    *,
    values: Sequence[float | bool | None] | None = None,
    answers: Sequence[object] | None = None,
    passes: Sequence[bool | int | None] | None = None,
    texts: Sequence[str | None] | None = None,
    selector: Sequence[float | None] | None = None,
    weights: Sequence[float] | None = None,
    facets: Sequence[Sequence[str]] | None = None,
    required: Sequence[str] | None = None,
    ideal: Sequence[float] | None = None,
    threshold: float | None = None,
    higher_is_better: bool = True,
) -> float | None:
    """One set's number by an aggregator; None where it is undefined.

    >>> aggregate("mean", values=[0.5, 0.8, 0.3, 0.9, 0.6])
    0.62
    >>> aggregate("majority", values=[1, 0, 1, 1, 0], answers=[42, 43, 42, 42, 41])
    1.0
    >>> aggregate("pass@5", values=[1, 0, 1]) is None
    True
    """
    from kofn.registry import aggregator
    from kofn.sets import CandidateSets

    size = next((len(c) for c in (values, passes, answers, texts, facets) if c is not None), None)
    if size is None:
        raise InputError("aggregate needs values, passes, answers or texts")
    if values is None:
        values = list(passes) if passes is not None else [0.0] * size
    one = CandidateSets.from_lists(
        [values],
        passes=_alone(passes),
        answers=_alone(answers),
        texts=_alone(texts),
        selectors=None if selector is None else {"selector": [selector]},
        weights=_alone(weights),
        facets=_alone(facets),
        required=_alone(required),
        ideal=_alone(ideal),
        threshold=threshold,
        higher_is_better=higher_is_better,
    )
    result = float(aggregator(name)(one)[0])
    return None if result != result else result


def _alone(column: Any) -> Any:
    return None if column is None else [column]


def _several(given: Any) -> tuple[Any, ...]:
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    return (given,) if alone else tuple(given)


def _from_frame(data: Any, options: ReadOptions) -> Table:
    from kofn.importers.tabular import frame_table

    frame: pl.DataFrame = data.collect() if hasattr(data, "collect") else data
    return frame_table(frame, "frame", options, "frame")
