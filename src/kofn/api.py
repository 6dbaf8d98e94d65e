"""The Python front door: score what you have, aggregate one set."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kofn.importers.base import ReadOptions
from kofn.importers.sources import expand
from kofn.runs.load import load_table
from kofn.scoring.configuration import GradingConfig
from kofn.scoring.evaluate import evaluate
from kofn.scoring.partitions import find_streamable, score_parts
from kofn.scoring.splits import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kofn.scoring.configuration import Spec
    from kofn.scoring.result import Result


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
    `kofn.parallel.engine`) calls metrics of your own on several processes or machines. `use` says how outputs are used
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
    slices = _several(by)
    keep = tuple(name for name in (*slices, cluster, weight) if name is not None)
    reading = ReadOptions(fields=fields or {}, keep=keep, everything=everything, format=format, where=where or {})
    options = GradingConfig(
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
        use=use,
        split=None if split is None else Split.parse(split),
    )
    if part_size is not None and not as_repeats:
        size = None if part_size == "auto" else part_size
        if (found := find_streamable(_places(data), reading, size)) is not None:
            return score_parts(found, reading, options, size=size, engine=engine, on_part=on_part)
    return evaluate(load_table(data, reading, as_repeats=as_repeats), options)


def _places(data: Any) -> list[str]:
    """The files that are named, patterns replaced by what they match; none where data is no paths."""
    several = [data] if isinstance(data, (str, Path)) else data
    named = isinstance(several, (list, tuple)) and all(isinstance(one, (str, Path)) for one in several)
    return expand(several) if named else []


def _several(given: Any) -> tuple[Any, ...]:
    alone = isinstance(given, str) or callable(given) or not isinstance(given, Iterable)
    return (given,) if alone else tuple(given)
