"""atheris drives the targets, guided by what of kofn each input reaches. It is no test: `make fuzz` runs it.

    python tests/fuzz/guided.py --seconds 300 --workers 2 [TARGET...]

Each target gets its share of the time in a process of its own, begins with its seeds, and keeps what reached something
new in a folder (--keep, else a temporary one), so that a longer run goes on where a shorter one ended. A crash, a hang
of 20 s or more than 2 GB of memory is written to tests/fuzz/corpus/TARGET/, where `make test` finds it from then on.
Exit code 1: something was found.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.fuzz.targets import Target

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
HANG = 20
MEMORY_MB = 2048
LONGEST_INPUT = 20_000
START = 6.0  # seconds that a process needs before it begins
TOGETHER = ("extract-", "match-")  # small readers of the same texts, which share a process


def main() -> int:
    """Parse the arguments and share the time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="all, unless named")
    parser.add_argument("--seconds", type=float, default=300, help="in all")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--keep", type=Path, help="folder of what was learnt")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    if options.one:
        return fuzz(options.one, options.targets)
    from tests.fuzz.targets import TARGETS

    names = options.targets or [*(name for name in TARGETS if not name.startswith(TOGETHER)), *TOGETHER]
    each = options.seconds * options.workers / len(names) - START
    with tempfile.TemporaryDirectory(prefix="kofn-fuzz-") as scratch:
        keep = options.keep or Path(scratch) / "kept"
        with ThreadPoolExecutor(options.workers) as pool:
            found = list(pool.map(lambda name: run(name, each, keep / name), names))
    print(f"{len(names)} targets, {sum(n for n, _ in found):,} inputs, {sum(f for _, f in found)} with findings")
    return int(any(f for _, f in found))


def run(name: str, seconds: float, keep: Path) -> tuple[int, bool]:
    """One target in a process of its own: how many inputs it had, and whether one of them failed."""
    from tests.fuzz.seeds import seeds

    keep.mkdir(parents=True, exist_ok=True)
    for form in {form for target in named(name) for form in target.forms}:
        for data in seeds()[form]:
            (keep / f"seed-{hashlib.sha256(data).hexdigest()[:12]}").write_bytes(data)
    crashes = HERE / "corpus" / named(name)[0].name
    before = set(crashes.glob("*")) if crashes.is_dir() else set()
    crashes.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        __file__,
        "--one",
        name,
        "--",
        *flags(seconds),
        f"-artifact_prefix={crashes}/",
        str(keep),
    ]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, cwd=ROOT)
    said = done.stdout + done.stderr
    count = next((int(line.split()[-1]) for line in said.splitlines() if "number_of_executed_units" in line), 0)
    new = sorted(set(crashes.glob("*")) - before)
    if not any(crashes.iterdir()):
        crashes.rmdir()
    failed = done.returncode != 0
    print(f"{name:24} {count:9,} inputs {time.monotonic() - start:6.1f} s  {'FAILED' if failed else 'ok'}", flush=True)
    if failed:
        print("\n".join(said.splitlines()[-40:]), *(f"kept as {path}" for path in new), sep="\n", flush=True)
    return count, failed


def named(name: str) -> list[Target]:
    """The target of a name, or all those whose names begin so."""
    from tests.fuzz.targets import TARGETS

    return [TARGETS[name]] if name in TARGETS else [one for key, one in TARGETS.items() if key.startswith(name)]


def flags(seconds: float) -> list[str]:
    """libFuzzer's, within bounds of time and memory."""
    return [
        f"-max_total_time={max(1, round(seconds))}",
        f"-timeout={HANG}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LONGEST_INPUT}",
        "-print_final_stats=1",
        "-verbosity=0",
    ]


def fuzz(name: str, arguments: list[str]) -> int:
    """In the process of one target: instrument kofn, then try until the time is up."""
    import warnings

    import atheris

    warnings.simplefilter("ignore")
    with atheris.instrument_imports(include=["kofn"]):
        from tests.fuzz.seeds import seeds

        targets = named(name)
        for target in targets:  # imports happen inside the readers
            for data in [data for form in target.forms for data in seeds()[form]]:
                target(data)
    atheris.Setup([sys.argv[0], *arguments], lambda data: [target(data) for target in targets] and None)
    atheris.Fuzz()
    return 0


if __name__ == "__main__":
    sys.exit(main())
