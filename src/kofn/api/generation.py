"""`kofn.run` and `kofn.verify`: outputs of a model generated, programs run, and both scored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from kofn import problems, scoring
from kofn.api.options import OptionError, RunKeywords, VerifyKeywords, settle
from kofn.errors import InputError
from kofn.generate.run import run as run_task

if TYPE_CHECKING:
    from types import SimpleNamespace

    from kofn.parallel.base import ParallelEngine
    from kofn.problems.functions import SampleResults
    from kofn.problems.verification import Verification
    from kofn.runs.record import Run
    from kofn.sandbox.base import Sandbox
    from kofn.scoring.configuration import Config

_CALLED = {"metric": "metrics", "tag": "tags"}  # options that the configuration calls otherwise


def run(task: Any, given: Config | None = None, **options: Unpack[RunKeywords]) -> Run:
    """Run a task: generate what is not there yet, score everything, write the run directory and its report.

    `task` is a name (`kofn list tasks`), a YAML file or a mapping. Options are those of `kofn run`, and come on top of
    `given`. Without `out` nothing is kept but what is returned. Running the same again asks for nothing that was
    answered; more repeats or cases ask only for the new ones.

    >>> rows = [{"id": "a", "question": "2 + 2", "answer": "4"}, {"id": "b", "question": "3 + 4", "answer": "7"}]
    >>> task = {"name": "sums", "dataset": rows, "stages": [{"name": "answer", "prompt": "{question} ="}]}
    >>> done = run(task, model=lambda prompt: "It is 4.", repeats=2)
    >>> done.result.get("mean").point
    0.5
    """
    return run_task(task, run_config(options, given))


def run_config(options: RunKeywords, given: Config | None = None) -> Config:
    """The configuration that options of `kofn.run` ask for."""
    asked = settle(RunKeywords, options)
    values = {_CALLED.get(name, name): getattr(asked, name) for name in asked.given}
    extract = values.get("extract")
    if isinstance(extract, str) and (extract == "llm" or extract.startswith("llm:")):
        values["llm_extract"] = extract.removeprefix("llm").removeprefix(":") or scoring.DEFAULT_READER
        del values["extract"]
    if isinstance(ids := values.get("ids"), str):
        values["ids"] = tuple(one.strip() for one in ids.split(",") if one.strip())
    return scoring.configure(*(() if given is None else (given,)), **values)


# programs


def verify(
    problem: Path | str, *submissions: Path | str, **options: Unpack[VerifyKeywords]
) -> Verification | SampleResults:
    """Run programs against a problem's cases, in a sandbox, and write their runs.

    `problem` is a folder with config.yaml, and a submission a folder or a file; or `problem` is a data set of functions
    with tests (JSON lines), and the submissions are files of samples. What is finished in `out` is not run again.
    Options are those of `kofn verify`.
    """
    asked = settle(VerifyKeywords, options)
    for one in (problem, *submissions):
        if not isinstance(one, (str, Path)):
            raise InputError(f"expected paths of a problem and of submissions, not {type(one).__name__}")
    place, paths = Path(problem), tuple(map(Path, submissions))
    data_set = is_data_set(place)
    if not paths:
        what = "samples (JSON lines with task_id and completion)" if data_set else "a submission, a folder or a file"
        raise OptionError(f"nothing to verify: give {what}")
    if asked.out is None:
        name = place.name.partition(".")[0] if data_set else problems.load_problem(place).name
        asked.out = Path("runs") / f"verify-{name}"
    try:
        return _verify_samples(place, paths, asked) if data_set else _verify_programs(place, paths, asked)
    except KeyboardInterrupt:
        if asked.on_note is not None:
            asked.on_note(f"what is finished is kept in {asked.out}: the same command goes on")
        raise


def is_data_set(problem: Path) -> bool:
    """Whether this is a data set of functions with tests, and no problem with checkpoints."""
    return problem.is_file() and problem.name != "config.yaml"


def _verify_programs(path: Path, submissions: tuple[Path, ...], asked: SimpleNamespace) -> Verification:
    if asked.timeout is not None:
        raise OptionError("--timeout is for data sets: a problem says in its files how long a case may take")
    problem = problems.load_problem(path)
    chosen = problem.select_checkpoints(asked.checkpoint)
    if asked.aggregate and len(submissions) == 1:
        raise InputError("--aggregate is over a set of submissions: give several")
    problems.check_aggregators(len(submissions), asked.aggregate)
    sandbox = _sandbox(asked)
    with _engine(asked) as engine:
        found = problems.verification.verify(
            problem,
            submissions,
            chosen,
            options=problems.verification.VerifyOptions(
                policy=asked.policy, groups=asked.group, cases=asked.case, repeat=asked.repeats
            ),
            engine=engine,
            sandbox=sandbox,
            out=asked.out,
            progress=asked.progress,
        )
    kept = {"checkpoint": asked.checkpoint, "policy": asked.policy, "groups": asked.group, "cases": asked.case,
            "repeat": asked.repeats, "aggregate": asked.aggregate, "engine": asked.engine}  # fmt: skip
    result = problems.write_runs(found, asked.out, kept, tags=asked.tag)
    return replace(found, result=result, directory=asked.out)


def _verify_samples(tasks: Path, samples: tuple[Path, ...], asked: SimpleNamespace) -> SampleResults:
    for name in ("group", "case", "checkpoint"):
        if name in asked.given:
            raise OptionError(f"--{name} is for problems with checkpoints, not for data sets")
    if asked.repeats > 1:
        raise OptionError("--repeats is for problems with checkpoints: give more samples")
    sandbox = _sandbox(asked)
    with _engine(asked) as engine:
        found = problems.run_samples(
            tasks,
            samples,
            seconds=asked.timeout,
            aggregate=asked.aggregate,
            engine=engine,
            sandbox=sandbox,
            out=asked.out,
            progress=asked.progress,
        )
    policy = scoring.PassPolicy(asked.policy) if "policy" in asked.given else None
    run = problems.write_samples(found, asked.out, aggregate=asked.aggregate, policy=policy, tags=asked.tag)
    return replace(found, run=replace(run, path=asked.out))


def _sandbox(asked: SimpleNamespace) -> Sandbox:
    from kofn.sandbox.drivers import find_sandbox

    return find_sandbox(unsafe=asked.unsafe, python=asked.python, show=asked.show)


def _engine(asked: SimpleNamespace) -> ParallelEngine:
    from kofn.parallel import engine

    if asked.engine != "ray" and (asked.ray_address or asked.shared):
        raise OptionError("--ray-address and --shared are for --engine ray")
    return engine(asked.engine, workers=asked.workers, ray_address=asked.ray_address, shared_path=asked.shared)
