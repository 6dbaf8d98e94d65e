r"""Answers out of a million texts of 300 characters: kofn against lm-eval's filters, Inspect's scorer, `re` and polars.

Letters, numbers and boxes behind their usual labels, by the patterns that lm-eval's own tasks use (mmlu_pro, gsm8k_cot,
hendrycks_math); and letters that nothing labels, where kofn has no columnar form and reads text by text. Both sides
must give the same answers. lm-eval and Inspect run on a part and are scaled.

    python benchmarks/run.py --only extraction
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
from beside import TOOLS, Peers
from score import WORDS
from table import Row, one_pass, race, show

from kofn.extract import boxed, extract_column, letter, number

if TYPE_CHECKING:
    from collections.abc import Callable

TITLE = "Extraction"
HOW = """Extracts answers from distinct texts of about 300 characters with the default extractors (`letter`,
`number`, `boxed`), which recognize many forms of an answer; the peers look only for the pattern that is in these
texts. kofn processes texts with a labelled answer at the end as columns, and any other text one by one: the last
kind, unlabelled letters, is of the latter, and a single pattern is far cheaper there. The run checks that answers
are equal. polars uses one core for one pattern; kofn uses two. Inspect's scorer also compares with the target. The
limit is one pass over the bytes."""

TEXTS, UNLABELLED, PART = 1_000_000, 20_000, 20_000


class Kind(NamedTuple):
    """How an answer ends a text, kofn's extractor, and the pattern a peer would look for."""

    tail: Callable[[random.Random], str]
    extractor: Callable[..., str | None]
    pattern: str
    lm_eval: str


def _letter(rng: random.Random) -> str:
    return f"The answer is ({rng.choice('ABCD')})."


def _number(rng: random.Random) -> str:
    return f"The answer is {rng.randint(1, 9999)}."


def _box(rng: random.Random) -> str:
    return rf"so it is $\boxed{{{rng.randint(1, 9999)}}}$."


_PLAIN = [word for word in WORDS if word != "a"]  # "one is a." would name an option


def _bare_letter(rng: random.Random) -> str:
    return f"i would pick {rng.choice('ABCD')} here, {' '.join(rng.choices(_PLAIN, k=5))}."


_FILTER = "filter = RegexFilter(data['pattern'])\n"
_BOXES = """
from lm_eval.tasks.hendrycks_math.utils import last_boxed_only_string, remove_boxed
class Boxes:
    def apply(self, resps, docs):
        return [[remove_boxed(last_boxed_only_string(text)) for text in texts] for texts in resps]
filter = Boxes()
"""
KINDS = {
    "letter": Kind(_letter, letter, r"answer is \(?([ABCDEFGHIJ])\)?", _FILTER),
    "number": Kind(_number, number, r"The answer is (\-?[0-9\.\,]+)\.", _FILTER),
    "box": Kind(_box, boxed, r"\\boxed\{([^{}]*)\}", _BOXES),
    "letter that nothing labels": Kind(_bare_letter, letter, r"\b([A-E])\b", _FILTER),
}

LM_EVAL = """
from lm_eval.filters.extraction import RegexFilter
{filter}
resps = [[text] for text in data["texts"]]
docs = [{{}} for _ in resps]
def work():
    return [found for found, in filter.apply(resps, docs)]
"""

INSPECT = """
import asyncio
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import Target, pattern
from inspect_ai.solver import TaskState
states = [TaskState(model="m", sample_id=i, epoch=1, input="", messages=[], output=ModelOutput.from_content("m", text))
          for i, text in enumerate(data["texts"])]
score = pattern(data["pattern"], ignore_case=False)
async def all_of():
    return [(await score(state, Target("A"))).answer for state in states]
def work():
    return asyncio.run(all_of())
"""


def make(kind: Kind, n: int) -> list[str]:
    """Texts that differ in their first words and in their answers."""
    rng = random.Random(7)
    bodies = [" ".join(rng.choices(WORDS, k=62)) for _ in range(2_000)]
    return [f"it is text {i} of many, {bodies[i % len(bodies)]}. {kind.tail(rng)}" for i in range(n)]


def with_re(pattern: str, texts: list[str]) -> list[str | None]:
    """What people write."""
    compiled = re.compile(pattern)
    return [found[-1] if (found := compiled.findall(text)) else None for text in texts]


def rows_of(name: str, kind: Kind, n: int, part: int) -> list[Row]:
    texts = make(kind, n)
    column = pl.Series("text", texts)
    inputs = {"texts": texts[:part], "pattern": kind.pattern}
    with Peers() as peers:
        runners: dict[str, Any] = {
            "kofn": lambda: extract_column(kind.extractor, column),
            "`re` a text": lambda: with_re(kind.pattern, texts),
            "polars `str.extract`": lambda: column.str.extract(kind.pattern, 1),
            "lm-eval's filter": peers.start("lm-eval", TOOLS, LM_EVAL.format(filter=kind.lm_eval), inputs),
            "Inspect's `pattern` scorer": peers.start("Inspect", TOOLS, INSPECT, inputs),
        }
        found = race(runners)
    ours = found.pop("kofn")
    limit = one_pass(int(column.str.len_bytes().sum()))
    work = f"{name}, {n:,} texts ({sum(map(len, texts[:1000])) / 1000:.0f} characters)"
    rows = []
    for peer, run in found.items():
        theirs = pl.Series(run.value, dtype=pl.String)
        assert theirs.equals(ours.value[: len(theirs)]), (peer, theirs[:5], ours.value[:5])
        other, scaled = run.seconds * n / len(theirs), len(theirs) < n
        rows.append(show(Row(work=work, kofn=ours.seconds, peer=peer, theirs=other, scaled=scaled, limit=limit)))
    return rows


def main(small: bool = False) -> list[Row]:
    rows = []
    for name, kind in KINDS.items():
        n = 1_000 if small else UNLABELLED if kind.tail is _bare_letter else TEXTS
        rows += rows_of(name, kind, n, min(n, PART))
    return rows


if __name__ == "__main__":
    main()
