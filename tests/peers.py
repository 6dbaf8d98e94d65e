"""Other tools, run for real: each in the environment that `make test` makes for them (.venv-peers)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYTHON = Path(os.environ.get("KOFN_PEERS_PYTHON", ROOT / ".venv-peers" / "bin" / "python"))


def needs_peer(module: str) -> pytest.MarkDecorator:
    """Skip, with the reason, where the environment of the peers or this package of it is not there."""
    there = (
        PYTHON.exists()
        and (
            subprocess.run(
                [PYTHON, "-c", f"import importlib.util as u, sys; sys.exit(u.find_spec({module!r}) is None)"]
            )
        ).returncode
        == 0
    )
    return pytest.mark.skipif(not there, reason=f"{module} is not in {PYTHON.parent}: `make test` installs it")


def run_peer(*arguments: object, timeout: float = 600, cwd: Path | None = None, **env: str) -> str:
    """Run the peers' Python with these arguments (`-c CODE`, `-m module`, a script); its standard output.

    kofn is importable there, from this checkout. Nothing may reach for a network.
    """
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [str(PYTHON), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env={**os.environ, **offline, "PYTHONPATH": str(ROOT / "src"), **env},
        check=False,
    )
    assert done.returncode == 0, f"{arguments}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout
