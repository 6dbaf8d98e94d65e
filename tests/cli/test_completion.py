"""`kofn completion`: the script of each shell, and that of bash evaluated in bash."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kofn.cli import kofn as program
from kofn.cli.completion_verb import SHELLS

ASK = """
eval "$({kofn} completion bash)"
COMP_WORDS=(kofn {words}) COMP_CWORD={n}
_kofn_completion kofn
printf '%s\\n' "${{COMPREPLY[@]}}"
complete -p kofn
"""


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_has_a_script_that_asks_kofn(shell):
    done = CliRunner().invoke(program, ["completion", shell])
    assert done.exit_code == 0
    assert f"_KOFN_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ca", {"calibrate"}),
        ("score --agg", {"--aggregate"}),
        ("completion f", {"fish"}),
        ("run --sampl", {"--sample"}),
    ],
)
def test_bash_completes_verbs_options_and_values(words, expected, tmp_path):
    program_file = tmp_path / "kofn"
    program_file.write_text(f'#!/bin/sh\nexec {sys.executable} -m kofn "$@"\n')
    program_file.chmod(0o755)
    source = str(Path(__file__).parents[2] / "src")
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": source}
    script = ASK.format(kofn=program_file, words=words, n=len(words.split()))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=env, check=True)
    *found, registered = done.stdout.split("\n")[:-1]
    assert {line.removeprefix("plain,") for line in found} == expected
    assert re.fullmatch(r"complete .* kofn", registered)
