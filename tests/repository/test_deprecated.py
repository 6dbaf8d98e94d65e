"""Import paths that version 0.1 documented keep working for one release."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from kofn._deprecated import MOVED, RENAMED

DOCUMENTED = """
checkpoint: load_problem run_checkpoint
checkpoint.functional: RunsTests
checkpoint.sandbox: Sandbox
comparing: Ask Side comparing
curves: best_of_n
diagnose: dipping
engine: engine
evaluate: Options Result
evaluation: evaluate_model_on evaluate_model_on_gsm8k evaluate_model_on_mmlu
extract.boxed: boxed
extract.filters: LmEvalFilter
extract.letter: letter
extract.mathematical: math
extract.number: number
generate.ask: extract_answer_with_llm
generate.live: read_live
generate.prices: Prices count_tokens
generate.stages: Stage
groupwise: any_pass best_score bootstrap_groups dcg_at_k distinct_ngrams evaluate_dataset group_metrics majority_vote
importers.rows: ReadOptions
judge.asking: Verdict
metrics.config: MetricConfig
metrics.exact: Contains ExactMatch RegexMatch
metrics.mathematical: MathEqual
metrics.structured: JsonEqual Schema
metrics.text: Bleu Chrf RougeL TokenF1
models.transformers: Transformers
report: AttributeResult CorrectnessResults PassPolicy Plan VerifierReport load_run write_run
report.frames: SCHEMA
report.run: load_run
running: Settings run
running.go: run
running.settings: Settings
selectors: Selector
sets: CandidateSet CandidateSets
stats.corrected: AnyOfCandidates Corrected MoreLabels any_of_candidates corrected_rate labels_to_halve
stats.estimate: estimate segment_estimates
stats.judge: Confusion JudgeRates Posterior Prevalence judge_rates known_rates lang_reiczigel rogan_gladen
training: KofnCallback
types: Candidate Case Decision Estimate Score
"""
NAMES = [
    (f"kofn.{module}", name)
    for module, _, names in (line.partition(": ") for line in DOCUMENTED.split("\n") if line)
    for name in names.split()
]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_a_documented_name_is_found_where_it_was_and_says_where_it_is(module, name):
    old = importlib.import_module(module)
    if module == "kofn.training":
        pytest.importorskip("transformers")
    with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} is now kofn\.") as caught:
        value = getattr(old, name)
    home, _, attribute = str(caught[0].message).rpartition(" ")[2].rpartition(".")
    assert value is getattr(importlib.import_module(home), attribute)


def test_every_old_module_leads_to_one_that_is_there():
    for old, new in MOVED.items():
        assert importlib.import_module(new).__name__ == new
        with pytest.raises(AttributeError, match=f"{old}' has no attribute 'nothing'"):
            importlib.import_module(old).nothing  # noqa: B018 - looking is what is tested
    for new in RENAMED.values():
        module, _, name = new.partition(":")
        assert hasattr(importlib.import_module(module), name)


def test_the_warning_names_the_line_that_imports():
    code = "import warnings; warnings.simplefilter('error')\nfrom kofn.sets import CandidateSets"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DeprecationWarning: kofn.sets.CandidateSets is now kofn.core.candidate_sets.CandidateSets" in done.stderr


@pytest.mark.parametrize(
    ("package", "name"), [("extract", "letter"), ("extract", "number"), ("extract", "boxed"), ("stats", "estimate")]
)
def test_an_old_module_does_not_take_the_place_of_the_function_of_its_name(package, name):
    code = f"import kofn.{package}.{name}\nfrom kofn.{package} import {name}\nprint(callable({name}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_the_old_command_runs():
    done = subprocess.run(
        [sys.executable, "-m", "kofn.evaluation", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "--task-type" in done.stdout


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"kofn\.nothing"):
        importlib.import_module("kofn.nothing")
