"""Time and memory of `kofn score` against the number of candidates, from ten thousand to a hundred million.

Folders of Parquet, eight candidates a case with their texts and references, are written first: about 100 bytes a
candidate as they are compressed, 10 GB at a hundred million, and gone afterwards. Each is scored by the command itself,
in a process of its own: extraction, comparison, votes, intervals. Its numbers must be those the data was made with.
Beside it stands the physical limit: polars reading the same columns in its streaming engine, keeping nothing.

Then the same folder by `--engine local` with two workers and by `--engine ray` on this machine: the results must be the
same. And what the plan for a cluster rests on (docs/scale.md): the time of a part, the bytes that come back of it, the
time to add them up, and a simulated cluster in which parts take as long as they were measured to take and nodes fail.

    python benchmarks/scale.py                     # all of it, and docs/scale.md: half an hour on two cores
    python benchmarks/scale.py --largest 1000000   # a quick look; writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from drawing import GOOD, MUTED, dots, level, line, panel, picture, svg, words
from score import measure as measured

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "scale.svg"
MARK = "<!-- measured -->"
N, FILE, POOL = 8, 2_000_000, 1 << 16
HANDING = 0.0017  # seconds to hand a part to a node and take back what comes, as docs/scale.md has it
LIMIT_MB = 4_000

READ = """
import polars as pl, sys
frame = pl.scan_parquet(sys.argv[1] + "/*.parquet").select(
    pl.col("id", "output", "reference").str.len_bytes().sum(), pl.col("repeat", "cost").sum())
frame.collect(engine="streaming")
"""


class Made(NamedTuple):
    """A folder of so many candidates, of which so many are right, in so many bytes."""

    folder: Path
    rows: int
    right: int
    size: int


class Took(NamedTuple):
    """Seconds, MB at peak (of the largest process), and what was printed."""

    seconds: float
    mb: float
    said: bytes


def pool(rng: np.random.Generator) -> pl.Series:
    """Sentences that do not compress away: words of random letters."""
    letters = rng.integers(97, 123, (POOL, 130), dtype=np.uint8)
    letters[:, 7::8] = ord(" ")
    return pl.Series("sentence", letters.view("S130").ravel().astype(str))


def rows_of(rng: np.random.Generator, sentences: pl.Series, first: int, cases: int) -> tuple[pl.DataFrame, int]:
    """Candidates of so many cases, those of a case together, and how many are right."""
    reference = np.repeat(rng.integers(1, 2000, cases), N)
    right = rng.random(cases * N) < np.repeat(rng.beta(2, 2, cases), N)
    answer = np.where(right, reference, reference + rng.integers(1, 500, cases * N))
    columns = pl.DataFrame(
        {
            "case": np.repeat(np.arange(first, first + cases), N),
            "repeat": np.tile(np.arange(N, dtype=np.int16), cases),
            "sentence": sentences.gather(rng.integers(0, POOL, cases * N)),
            "answer": answer,
            "reference": reference,
            "cost": rng.random(cases * N),
        }
    )
    frame = columns.select(
        pl.concat_str(pl.lit("q"), "case").alias("id"),
        "repeat",
        pl.concat_str("sentence", pl.lit(". The answer is "), "answer", pl.lit(".")).alias("output"),
        pl.col("reference").cast(pl.String),
        "cost",
    )
    return frame, int(right.sum())


def write(folder: Path, rows: int, seed: int = 1) -> Made:
    """The data set, a file of two million candidates after the other."""
    rng = np.random.default_rng(seed)
    sentences = pool(rng)
    folder.mkdir(parents=True)
    right = 0
    for at, start in enumerate(range(0, rows, FILE)):
        frame, n = rows_of(rng, sentences, start // N, min(FILE, rows - start) // N)
        frame.write_parquet(
            folder / f"part-{at:05}.parquet", compression="zstd", compression_level=1, row_group_size=250_000
        )
        right += n
    return Made(folder, rows, right, sum(p.stat().st_size for p in folder.iterdir()))


def measure(command: list[str]) -> Took:
    """A command in a process of its own; memory is that of the largest of its processes."""
    with tempfile.NamedTemporaryFile() as said:
        seconds, mb = measured(command, said.name)
        return Took(seconds, mb, Path(said.name).read_bytes())


def score(made: Made, *options: str) -> Took:
    """`kofn score`, and its mean must be the share of right candidates."""
    took = measure([sys.executable, "-m", "kofn", "score", str(made.folder), "--json", *options])
    found = json.loads(took.said)
    mean = next(e["point"] for e in found["estimates"] if e["aggregator"] == "mean")
    assert found["n_candidates"] == made.rows
    assert abs(mean - made.right / made.rows) < 1e-12, (mean, made.right / made.rows)
    return took


def curve(folder: Path, largest: int) -> list[dict[str, float]]:
    """A row for each power of ten."""
    found = []
    rows = 10_000
    while rows <= largest:
        made = write(folder / str(rows), rows)
        limit, took = measure([sys.executable, "-c", READ, str(made.folder)]), score(made)
        found.append({"rows": rows, "bytes": made.size, "seconds": took.seconds, "mb": took.mb, "limit": limit.seconds})
        print(f"{rows:,} candidates, {made.size / 1e9:.3g} GB: {took.seconds:.1f} s, {took.mb:,.0f} MB; "
              f"merely reading {limit.seconds:.1f} s", flush=True)  # fmt: skip
        assert took.mb < LIMIT_MB, "memory is not bounded"
        shutil.rmtree(made.folder)
        rows *= 10
    return found


def engines(made: Made, small: Made) -> dict[str, float]:
    """The same on two processes and on Ray, on a folder that takes a while: the same results."""
    alone = score(made)
    workers = ("--engine", "local", "--workers", "2", "--part-size", "1000000")
    two, start = score(made, *workers), score(small, *workers)
    ray = score(made, "--engine", "ray", "--ray-address", "local", "--part-size", "1000000")
    assert alone.said == two.said == ray.said, "engines differ"
    took = {"alone": alone.seconds, "two": two.seconds, "ray": ray.seconds, "start": start.seconds}
    print(f"{made.rows:,} candidates: {', '.join(f'{name} {s:.1f} s' for name, s in took.items())}; the same results")
    return took


def parts(made: Made) -> dict[str, float]:
    """What a part of a million takes of a core, the bytes that come back, and the time to add up ten thousand."""
    from kofn.importers.base import ReadOptions
    from kofn.importers.parquet_partitions import columns_to_read, find_case_layout, find_data_set, partitions_of
    from kofn.scoring.configuration import GradingConfig
    from kofn.scoring.partitions import PART, PartitionPlan, PartSample, result_of_parts, score_partition

    reading, options = ReadOptions(), GradingConfig(extract="number", metrics=("numeric",))
    data = find_data_set([str(made.folder)], reading)
    assert data is not None
    plan = PartitionPlan(
        data=data, columns=tuple(columns_to_read(data, reading)), reading=reading, options=options, base=None
    )
    start = time.process_time()
    pieces = partitions_of(find_case_layout(data, "id", PART).spans, PART)
    looking = (time.process_time() - start) / len(pieces)
    seconds, several = [], []
    for piece in pieces[:10]:
        start = time.process_time()  # of all threads: polars takes what cores it finds
        several.append(score_partition(plan, piece))
        seconds.append(time.process_time() - start + looking)
    sent = len(pickle.dumps(several[-1], pickle.HIGHEST_PROTOCOL))
    from kofn.importers.parquet_partitions import read_partition
    from kofn.scoring.evaluate import grade

    table = read_partition(
        data, plan.columns, pieces[0]._replace(spans=(pieces[0].spans[0]._replace(stop=8_000),)), reading
    )
    table, scored = grade(table, options, whole=False)
    many = [replace(one) for one in several if one is not None] * (10_000 // len(several))
    start = time.perf_counter()
    result_of_parts(many, PartSample(table=table, scored=scored), options)
    adding = time.perf_counter() - start
    core = float(np.median(seconds[1:] or seconds))
    print(f"a part: {core:.2f} s of a core, {sent:,} bytes come back; {len(many):,} parts added up in {adding:.1f} s")
    return {"part": core, "sent": sent, "adding": adding, "added": len(many)}


def simulated(part: float, n_parts: int, cores: int, rng: np.random.Generator, *, lost_an_hour: float) -> float:
    """Hours that `n_parts` parts take on so many cores, where a core is lost so often and its part runs again.

    A part takes its measured time, spread log-normally by a quarter as on a shared cluster; a core that is lost is back
    after five minutes. Parts are handed out one after the other by one machine, as `--engine ray` does.
    """
    free = [0.0] * cores
    heapify(free)
    queue, end, handed = n_parts, 0.0, 0.0
    takes = part * np.exp(rng.normal(0, 0.25, n_parts) - 0.25**2 / 2)
    fails = rng.random(n_parts) < 1 - np.exp(-lost_an_hour * takes / 3600)
    again: list[float] = []
    while queue or again:
        handed += HANDING
        now = max(heappop(free), handed)
        if again:
            length, failed = again.pop(), False
        else:
            queue -= 1
            length, failed = float(takes[queue]), bool(fails[queue])
        if failed:
            again.append(length)
            heappush(free, now + length / 2 + 300)
        else:
            end = max(end, now + length)
            heappush(free, now + length)
    return end / 3600


def check_simulation(part: float, took: dict[str, float], rows: int) -> float:
    """What the simulation gives for two workers, over what they took beside what a small file takes them."""
    hours = simulated(part, -(-rows // 1_000_000), 2, np.random.default_rng(0), lost_an_hour=0)
    return 3600 * hours / (took["two"] - took["start"])


def table(found: list[dict[str, float]]) -> str:
    head = "| candidates | Parquet | time | memory | reading only | candidates per second |\n|---|---|---|---|---|---|"
    lines = [
        f"| {one['rows']:,.0f} | {_bytes(one['bytes'])} | {one['seconds']:,.1f} s | {one['mb']:,.0f} MB "
        f"| {one['limit']:,.1f} s | {one['rows'] / one['seconds']:,.0f} |"
        for one in found
    ]
    return "\n".join([head, *lines])


def _bytes(n: float) -> str:
    return f"{n / 1e9:.2f} GB" if n >= 1e9 else f"{n / 1e6:.1f} MB"


def draw(found: list[dict[str, float]]) -> None:
    """Time and memory against candidates, all axes logarithmic."""
    last, scale = found[-1], {"type": "log"}
    ticks = {"x_scale": scale, "y_scale": scale, "x_axis": {"format": "~s", "values": [one["rows"] for one in found]}}
    ours = [line(found, "rows", "seconds", GOOD), dots(found, "rows", "seconds", GOOD)]
    limit = [line(found, "rows", "limit", MUTED, dash=True), dots(found, "rows", "limit", MUTED)]
    before = found[-2]
    named = [
        words(last["rows"], last["seconds"], "kofn score", GOOD, align="right", dx=-12, dy=-4),
        words(before["rows"], before["limit"], "merely reading", MUTED, dx=4, dy=16),
    ]
    memory = [line(found, "rows", "mb", GOOD), dots(found, "rows", "mb", GOOD), level(LIMIT_MB)]
    memory.append(words(1e4, LIMIT_MB, "4 GB", MUTED, dx=4, dy=-9))
    common = {"x": "candidates", "across": (8e3, 1.4e8), "size": (330, 250)}
    seconds, mb = {"format": "~g", "values": [0.1, 1, 10, 100]}, {"format": "~s", "values": [100, 300, 1000, 3000]}
    spec = picture(
        panel("Time", [*limit, *ours, *named], y="seconds", up=(0.1, 200), **common, **ticks, y_axis=seconds),
        panel("Memory at its peak", memory, y="MB", up=(80, 6000), **common, **ticks, y_axis=mb),
    )
    PICTURE.write_text(svg(spec, "Time and memory of kofn score against the number of candidates"))


def page(found: list[dict[str, float]], made: Made, took: dict[str, float], of: dict[str, float]) -> None:
    """The measured part of docs/scale.md, between its marks."""
    rng = np.random.default_rng(0)
    whole_run = found[-1]["seconds"] * (os.cpu_count() or 1) / (found[-1]["rows"] / 1e6)
    part = max(of["part"], whole_run)  # of a core, everything included
    clusters = []
    for cores in (64, 512, 4096):
        minutes = 60 * simulated(part, 100_000, cores, rng, lost_an_hour=0.01)
        perfect = part * 100_000 / cores / 60
        reading = found[-1]["bytes"] / found[-1]["rows"] * 1e11 / (60 * minutes) / 1e9
        clusters.append(f"| {cores:,} | {perfect:,.1f} min | {minutes:,.1f} min | {reading:,.1f} GB per second |")
    off = check_simulation(part, took, made.rows)
    growth = found[-1]["seconds"] / found[-2]["seconds"]
    text = f"""{MARK}

Measured by `make scale` on {datetime.now(UTC):%Y-%m-%d}, on {os.cpu_count()} cores, with eight candidates per case, their texts and
references: extraction, comparison, votes, numbers with intervals.

{table(found)}

![Time and memory against the number of candidates](images/scale.svg)

From ten to a hundred million candidates the time grows {growth:.1f} times. {made.rows:,} candidates took {took["alone"]:.1f} s in one process,
whose threads use both cores, {took["two"]:.1f} s with `--engine local --workers 2`, and {took["ray"]:.1f} s with `--engine ray` on this machine, including
Ray's start. All three printed the same bytes.

A part of one million candidates took {of["part"]:.2f} s of a core and returned {of["sent"]:,.0f} bytes, and {of["added"]:,.0f} parts were added up in
{of["adding"]:.1f} s. Including all overhead of a whole run it is {part:.2f} s of a core. The time for 10^11 candidates is computed from that, not measured:
a simulated cluster hands out parts one by one, their times vary by a quarter, each core is lost once in a hundred hours and
its part starts again. For the two workers above, the simulation gives {off:.2f} times the measured time.

| cores | 10^11 candidates, no losses | simulated | read from storage |
|---|---|---|---|
{chr(10).join(clusters)}

{MARK}"""  # noqa: E501 - lines of the page
    whole = PAGE.read_text()
    before, _, rest = whole.partition(MARK)
    _, _, after = rest.partition(MARK)
    PAGE.write_text(before + text + after)
    draw(found)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--largest", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, help="where the data is written (default: the temporary folder)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        found = curve(folder, given.largest)
        some = write(folder / "engines", min(given.largest, 10_000_000))
        took, of = engines(some, write(folder / "small", 10_000)), parts(some)
        if given.largest >= 100_000_000:
            page(found, some, took, of)


if __name__ == "__main__":
    main()
