"""Importer of HELM runs: scenario_state.json, with per_instance_stats.json and run_spec.json beside it."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from kofn.core.warnings import CodedWarning
from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.base import Importer, reject_malformed
from kofn.importers.log_table import LogFacts, LogRow, count_notes, iter_members, parse_json
from kofn.importers.recognition import HELM_STATE, is_helm
from kofn.importers.scalars import as_object, object_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kofn.core.table import Table
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_STATS, _SPEC = "per_instance_stats.json", "run_spec.json"
# statistics that describe a request and grade nothing
_BOOKKEEPING = re.compile(
    r"num_.*|finish_reason_.*|inference_.*|training_.*|estimated_.*|batch_size|max_prob|prompt_truncated|"
    r"predicted_index|logprob|bits_per_byte|perplexity|.*@\d+"
)
# label -> whether more is better
_LOWER = dict.fromkeys(("edit_distance", "absolute_value_difference", "ter_score", "wer_score", "cer_score"), False)

# what is left out, by reason: what it is, and why
_LEFT_OUT = {
    "failed": ("failed-in-log", "helm"),
    "ungraded": ("failed-in-log", "helm-completion"),
    "unchosen": ("left-out-of-log", "option"),
}

_Key = tuple[str, str | None, int]
_Stats = dict[str, float]


def read(peek: Peek, options: ReadOptions) -> Table:
    """Instances as cases; completions of all trials as candidates; HELM's statistics of each as labels."""
    folder = peek.path if peek.path.is_dir() else peek.path.parent
    run = _HelmRun(folder / HELM_STATE if peek.path.is_dir() else peek.path, peek.source, options)
    run.load_stats(folder / _STATS)
    run.origin |= _origin(folder / _SPEC)
    return LogFacts(
        source=peek.source,
        form="HELM request states",
        labels=_LOWER,
        systems=("perturbation",),
        notes=run.notes,
        origin=run.origin,
        fields={"id": "instance.id", "text": "completions.text", "reference": "references"},
    ).table(run.rows(), options)


class _HelmRun:
    def __init__(self, path: Path, source: str, options: ReadOptions) -> None:
        self.path, self.source, self.options = path, source, options
        self.origin: dict[str, Any] = {"tool": "helm"}
        self.stats: dict[_Key, _Stats] = {}
        self.notes: list[CodedWarning] = []
        self.counts: Counter[str] = Counter()  # of what is left out, by reason

    def load_stats(self, path: Path) -> None:
        """(instance, perturbation, trial) -> statistic -> its mean."""
        if not path.is_file():
            self.notes.append(CodedWarning.of("left-out-of-log", about="statistics", file=_STATS))
            return
        stats: defaultdict[_Key, _Stats] = defaultdict(dict)
        try:
            for one in parse_json(path.read_bytes()):
                key = (str(one["instance_id"]), _name(one.get("perturbation")), int(one["train_trial_index"]))
                for stat in one["stats"]:
                    if isinstance(stat.get("mean"), (int, float)) and math.isfinite(stat["mean"]):
                        stats[key][stat["name"]["name"]] = stat["mean"]
        except (TypeError, KeyError, ValueError, AttributeError) as problem:
            what = f"{type(problem).__name__}: {problem!s:.80}"
            raise InputError(f"{path}: not a list of HELM's statistics ({what}): repair or remove") from None
        self.stats = dict(stats)

    def rows(self) -> Iterator[LogRow]:
        number = 0
        for path, value in iter_members(self.path, self.source, [("request_states",)]):
            if path == ("adapter_spec",) and isinstance(value, dict) and value.get("model"):
                self.origin.setdefault("model", value["model"])
            if path == ("request_states",):
                number += 1
                with reject_malformed(f"{self.source}: request state {number}", "HELM"):
                    yield from self._state(f"request state {number}", value)
        self.notes += count_notes(self.counts, _LEFT_OUT)

    def _state(self, place: str, state: Any) -> Iterator[LogRow]:
        instance = object_in(as_object(state), "instance")
        if instance.get("id") is None:
            raise InputError(f"{self.source}: {place}: expected an instance with an id")
        if state.get("request_mode") == "calibration":
            return
        trial = int(state.get("train_trial_index") or 0)
        stats = self.stats.get((str(instance["id"]), _name(instance.get("perturbation")), trial), {})
        # where options are scored one by one, each has a request state: only the predicted one is an answer
        option = state.get("reference_index")
        if option is not None and stats.get("predicted_index") != option:
            self.counts["unchosen"] += "predicted_index" not in stats
            return
        result = object_in(state, "result")
        shared = self._case(state, instance)
        completions = [one for one in result.get("completions") or () if isinstance(one, dict)]
        per_trial = int(object_in(state, "request").get("num_completions") or 1)
        if not completions or result.get("success") is False:
            self.counts["failed"] += 1
            error = result.get("error") or ("not executed" if not result else "no completion")
            yield LogRow(place, {**shared, "repeat": trial * per_trial, "error": error})
            return
        self.counts["ungraded"] += len(completions) - 1
        single = len(completions) == 1
        # the statistics that grade an output; those of k outputs (`@5`, and `pass` of several) grade the set
        names = [name for name in stats if not _BOOKKEEPING.fullmatch(name) and (single or name != "pass")]
        labels = {f"label.{name}": stats[name] for name in names}
        for at, completion in enumerate(completions):
            yield LogRow(
                place,
                {
                    **shared,
                    # numbered through all trials, so that no two candidates of a case share an index
                    "repeat": trial * max(per_trial, len(completions)) + at,
                    # where options were scored one by one, the answer is the option itself
                    "text": completion.get("text") if option is None else _output(instance["references"][option]),
                    "reasoning": (completion.get("thinking") or {}).get("text"),
                    "seconds": result.get("request_time") if single else None,
                    "tokens": len(completion.get("tokens") or ())
                    or (stats.get("num_output_tokens") if single else None),
                    "tokens_in": stats.get("num_prompt_tokens"),
                    **(labels if at == 0 else {}),
                },
            )

    def _case(self, state: Mapping[str, Any], instance: Mapping[str, Any]) -> dict[str, Any]:
        references = [one for one in instance.get("references") or () if isinstance(one, dict)]
        mapping = state.get("output_mapping")
        correct = [_output(one) for one in references if "correct" in (one.get("tags") or ())]
        request = object_in(state, "request")
        prompt = (instance.get("input") or {}).get("text") or scalars.dialogue(request.get("prompt"))
        return {
            "id": instance["id"],
            "reference": correct or None,
            "choices": list(mapping.values()) if isinstance(mapping, dict) and mapping else None,
            "input": prompt if self.options.everything else None,
            "tag.split": instance.get("split"),
            "tag.sub_split": instance.get("sub_split"),
            "tag.perturbation": _name(instance.get("perturbation")),
        }


def _name(perturbation: Any) -> str | None:
    return str(perturbation.get("name")) if isinstance(perturbation, dict) else None


def _output(reference: Mapping[str, Any]) -> str:
    return str((reference.get("output") or {}).get("text", ""))


def _origin(path: Path) -> dict[str, Any]:
    """The task and the model of run_spec.json, if it exists; its name has both."""
    try:
        spec = as_object(parse_json(path.read_bytes()))
    except (OSError, ValueError):
        return {}
    name = re.sub(r"(?P<sign>[:,])model=[^,]*,?", r"\g<sign>", str(spec.get("name") or "")).strip(":,")
    known = {"task": name, "model": object_in(spec, "adapter_spec").get("model")}
    return {key: value for key, value in known.items() if value}


IMPORTER = Importer(name="helm", what="HELM runs (scenario_state.json or their folder)", recognises=is_helm, read=read)
