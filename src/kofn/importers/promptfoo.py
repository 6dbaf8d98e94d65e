"""Importer of promptfoo exports: `promptfoo eval -o results.json` (or .jsonl), `promptfoo export`, evaluate().

A row is one output of one test, prompt and provider. With `--repeat` every repeat has a test index of its own, so the
repeats of a test are found by what the test is: its description, variables and assertions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from kofn.errors import InputError
from kofn.importers import scalars
from kofn.importers.base import Importer, reject_malformed
from kofn.importers.log_table import LogFacts, LogRow, count_notes, iter_members, objects, require_fields
from kofn.importers.recognition import is_promptfoo
from kofn.importers.scalars import object_in, plain_tags

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kofn.core.table import Table
    from kofn.core.warnings import CodedWarning
    from kofn.importers.base import ReadOptions
    from kofn.importers.recognition import Peek

_ERROR = 2  # ResultFailureReason of promptfoo: 0 none, 1 an assertion, 2 an error
_LONG = 80  # characters of a label: a prompt without one has its whole text there
_STRIPPED = "[output stripped]"
_UNKNOWN = 1 << 59  # an index that sorts after every test whose index is known


def read(peek: Peek, options: ReadOptions) -> Table:
    """Outputs by test, those of each provider and prompt a set of their own."""
    export = _PromptfooExport(peek, options)
    rows = export.rows()
    return LogFacts(
        source=peek.source,
        form="promptfoo results",
        labels={"pass": True, "score": True},
        systems=("provider", "prompt"),
        notes=export.notes(),
        origin=export.origin(rows),
        fields={
            "text": "response.output",
            "repeat": "testIdx",
            "seconds": "latencyMs",
            "label.pass": "success",
            "label.score": "score",
        },
    ).table(rows, options)


class _PromptfooTest(NamedTuple):
    """The test of a result: its index in the run, its description, and its content."""

    at: int
    title: str | None
    key: str


class _PromptfooExport:
    """The results of an export, and counts of what is wrong with them."""

    def __init__(self, peek: Peek, options: ReadOptions) -> None:
        self.peek, self.options = peek, options
        self.counts: Counter[str] = Counter()
        self.version: Any = None

    def rows(self) -> list[LogRow]:
        """One row per result. Tests are identified by their content, and named by their description or their place."""
        parsed = []
        for at, result in self._results():
            with reject_malformed(f"{self.peek.source}: {at}", "promptfoo"):
                parsed.append(self._row(at, result))
        tests = [values["test"] for _, values in parsed]
        first: dict[str, int] = {}
        for test in tests:
            first[test.key] = min(first.get(test.key, test.at), test.at)
        place = {key: number for number, key in enumerate(sorted(first, key=lambda key: first[key]), 1)}
        shared = Counter({test.key: test.title for test in tests}.values())
        same = all(values.get("label.score") == values.get("label.pass") for _, values in parsed)
        left_out = {"test", *(["label.score"] if same else [])}
        rows = []
        for test, (where, values) in zip(tests, parsed, strict=True):
            name = test.title if test.title and shared[test.title] == 1 else f"test {place[test.key]}"
            rows.append(LogRow(where, {"id": name, **{k: v for k, v in values.items() if k not in left_out}}))
        return rows

    def _results(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.peek.first is not None and "results" not in self.peek.first:
            yield from objects(self.peek, "provider", "prompt")
            return
        number = 0
        for path, value in iter_members(self.peek.path, self.peek.source, [("results",), ("results", "results")]):
            if path[-1] == "version" and len(path) <= 2:
                self.version = self.version or value
            if path[-1] != "results" or value is None:
                continue
            number += 1
            if not isinstance(value, dict):
                kind = type(value).__name__
                raise InputError(f"{self.peek.source}: result {number}: expected an object, found {kind}")
            yield f"result {number}", value
        if not number:
            raise InputError(f"{self.peek.source}: no results in this promptfoo export: the evaluation gave none")

    def _row(self, place: str, result: Mapping[str, Any]) -> LogRow:
        require_fields(result, ("provider", "prompt", "success"), f"{self.peek.source}: {place}", "in every result")
        test, response = object_in(result, "testCase"), object_in(result, "response")
        error = self._error(result)
        usage = object_in(response, "tokenUsage") or object_in(result, "tokenUsage")
        output, cached = response.get("output"), response.get("cached") is True
        self.counts["cached"] += cached
        self.counts["stripped"] += output == _STRIPPED
        at = result.get("testIdx") if isinstance(result.get("testIdx"), int) else None
        values = result.get("vars") or test.get("vars") or {}
        description = test.get("description") or result.get("description")
        content = [description, values, test.get("assert")]  # what identifies a test
        provider, named = result["provider"], result["prompt"]
        if isinstance(provider, dict):
            provider = provider.get("label") or provider.get("id")
        if isinstance(named, dict):
            named = named.get("label") or named.get("display") or named.get("raw")
        prompt = " ".join(str(named).split())
        if len(prompt) > _LONG:  # the whole prompt: its beginning and its hash
            prompt = f"{prompt[: _LONG // 2]}... {str(result.get('promptId') or len(prompt))[:8]}"
        return LogRow(
            place,
            {
                "test": _PromptfooTest(
                    at=_UNKNOWN if at is None else at,
                    title=scalars.as_text(description),
                    key=orjson.dumps(content, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode(),
                ),
                "repeat": at,
                "text": None if error or output == _STRIPPED else scalars.as_text(output),
                "error": error,
                "note": None if error else object_in(result, "gradingResult").get("reason"),
                "input": object_in(result, "prompt").get("raw") if self.options.everything else None,
                "cost": result.get("cost") or response.get("cost") or (0 if cached else None),
                "seconds": (result.get("latencyMs") or 0) / 1000 or None,  # 0 is a cached reply, not a time
                "tokens": usage.get("completion"),
                "tokens_in": usage.get("prompt"),
                **self._labels(result, test, error),
                **plain_tags(test.get("metadata")),
                **plain_tags(values),
                "tag.provider": str(provider),
                "tag.prompt": prompt,
            },
        )

    def _error(self, result: Mapping[str, Any]) -> str | None:
        """What went wrong in a call. The reason of a failed assertion, which is written as `error` too, is none."""
        reason, response = result.get("failureReason"), object_in(result, "response")
        unfinished = not result.get("gradingResult") and "output" not in response
        failed = unfinished if reason is None else reason == _ERROR
        message = response.get("error") or result.get("error")
        if not failed or (reason is None and not message):
            return None
        self.counts["failed"] += 1
        return scalars.as_text(message) or "failed without a message"

    def _labels(self, result: Mapping[str, Any], test: Mapping[str, Any], error: str | None) -> dict[str, Any]:
        """The verdict, the score and the named scores; none where the call or a grader failed, or nothing was asserted.

        A result without an assertion is a success to promptfoo, whatever was said.
        """
        grading = object_in(result, "gradingResult")
        parts = [one for one in grading.get("componentResults") or () if isinstance(one, dict)]
        if error is not None:
            return {}
        if any(object_in(one, "metadata").get("graderError") for one in (grading, *parts)):
            self.counts["ungraded"] += 1
            return {}
        if not parts and not test.get("assert") and not grading.get("assertion"):
            self.counts["unasserted"] += 1
            return {}
        scores = {f"label.{name}": value for name, value in object_in(result, "namedScores").items()}
        return {"label.pass": result["success"], "label.score": result.get("score"), **scores}

    def notes(self) -> list[CodedWarning]:
        """One warning for each kind of problem."""
        kinds = {
            "failed": ("failed-in-log", "output"),
            "ungraded": ("failed-in-log", "grader"),
            "unasserted": ("failed-in-log", "assertion"),
            "stripped": ("left-out-of-log", "stripped"),
            "cached": ("log-grades-otherwise", "cached"),
        }
        return list(count_notes(self.counts, kinds))

    def origin(self, rows: list[LogRow]) -> dict[str, Any]:
        """The tool, and the provider where there is one."""
        providers = {row.values["tag.provider"] for row in rows}
        model = {"model": providers.pop()} if len(providers) == 1 else {}
        return {"tool": "promptfoo", **model, **({"version": self.version} if self.version else {})}


IMPORTER = Importer(name="promptfoo", what="promptfoo exports (.json and .jsonl)", recognises=is_promptfoo, read=read)
