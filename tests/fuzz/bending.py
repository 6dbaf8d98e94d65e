"""Good examples, bent: what a tool of another version, a careless script or an attacker makes of a file.

A tree of JSON loses parts, gets parts twice, and has values replaced by odd ones; the tree is then written in its form
again. Bytes are cut, repeated and overwritten. So most of what is tried is almost right, and gets far.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml
from hypothesis import strategies as st
from tests.fuzz import seeds as good
from tests.fuzz.targets import SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]

EVIL = "</script><b onclick=x>\u202e\x1b[31m\x00\u2028'\"&{{7*7}}\r\n"
ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**30, -(10**400), 0.5, -0.0, 1e308, 5e-324),
    *(
        "",
        " ",
        "0",
        "4",
        "true",
        "nan",
        "1e999",
        "x" * 3000,
        "9" * 5000,
        EVIL,
        "\ud800",
        "日本",
        "=1+1",
        "../../x",
        "a.b:c",
    ),
    *([], {}, [[]], [None], {"": None}, [1, "a", None], {"a": {"b": []}}, DEEP),
]
values = st.one_of(
    st.sampled_from(ODD),
    st.sampled_from(ODD),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=6),
)


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where every part of a tree is."""
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(path for key, value in inside for path in paths(value, (*at, key)))]


def changed(tree: Any, at: Sequence[Any], how: str, value: Any) -> Any:
    """A tree with one part replaced, left out, listed, doubled, or under another name."""
    if not at:
        return [tree] if how == "list" else tree if how in ("drop", "twice", "rename") else value
    key, rest = at[0], at[1:]
    if isinstance(tree, list):
        if key >= len(tree):
            return tree
        if not rest and how in ("drop", "twice"):
            return tree[:key] + ([tree[key]] * 2 if how == "twice" else []) + tree[key + 1 :]
        return [*tree[:key], changed(tree[key], rest, how, value), *tree[key + 1 :]]
    if not isinstance(tree, dict) or key not in tree:
        return tree
    if not rest and how in ("drop", "rename"):
        left = {k: v for k, v in tree.items() if k != key}
        return left if how == "drop" else {**left, str(value)[:50]: tree[key]}
    return {**tree, key: changed(tree[key], rest, how, value)}


@st.composite
def bent(draw: Any, tree: Any, most: int = 3) -> Any:
    """A tree changed in up to `most` places."""
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.sampled_from(paths(tree)))
        how = draw(st.sampled_from(["value", "value", "value", "drop", "list", "twice", "rename"]))
        tree = changed(tree, at, how, draw(values))
    return tree


def as_json(tree: Any) -> bytes:
    return json.dumps(tree, ensure_ascii=True).encode()


def as_lines(tree: Any) -> bytes:
    return b"".join(as_json(row) + b"\n" for row in tree) if isinstance(tree, list) else as_json(tree)


def as_yaml(tree: Any) -> bytes:
    if tree is DEEP or len(paths(tree)) > 150:  # PyYAML's writer is no target
        return as_json(tree)
    return yaml.safe_dump(tree, sort_keys=False).encode("utf-8", "surrogatepass")


def as_parquet(tree: Any) -> bytes:
    """Rows as Parquet where polars can hold them, else as JSON lines under the name of Parquet."""
    try:
        return good.parquet(tree)
    except Exception:  # whatever polars cannot write
        return as_lines(tree)


def as_arrow(tree: Any) -> bytes:
    try:
        return good.arrow(tree)
    except Exception:  # as above
        return as_lines(tree)


def as_zip(tree: Any) -> bytes:
    return good.inspect_zip(tree) if isinstance(tree, dict) else as_json(tree)


@st.composite
def broken(draw: Any, data: bytes) -> bytes:
    """Bytes cut, repeated, overwritten, or with something put in."""
    out = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(out)))
        how = draw(st.sampled_from(["cut", "put", "flip", "repeat", "drop"]))
        if how == "cut":
            del out[at:]
        elif how == "put":
            out[at:at] = draw(
                st.binary(max_size=8) | st.sampled_from([b"\x00", b"\xff\xfe", b'"', b"\n\n", b"&a [*a]"])
            )
        elif how == "flip" and at < len(out):
            out[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "repeat":
            out[at:at] = out[at : at + draw(st.integers(1, 40))] * draw(st.integers(1, 30))
        else:
            del out[at : at + draw(st.integers(1, 12))]
    return bytes(out)


def _of(*pairs: tuple[Callable[[Any], bytes], Any]) -> st.SearchStrategy[bytes]:
    return st.one_of([bent(tree).map(write) for write, tree in pairs])


def _joined(*parts: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.tuples(*parts).map(SEPARATOR.join)


def _yaml(text: str) -> st.SearchStrategy[bytes]:
    return _of((as_yaml, yaml.safe_load(text)))


LINES = st.one_of(*(_of((as_lines, rows)) for rows in (good.LONG, good.WIDE, good.GROUPS)), _of((as_json, good.LONG)))
TEXTS = st.lists(
    st.sampled_from(
        [
            *(
                "answer is ",
                "Answer: ",
                r"\boxed{",
                "}",
                r"\frac{1}{",
                "####",
                "<think>",
                "</think>",
                "(A)",
                "B",
                "7",
                ",",
            ),
            *(
                "1,080",
                ".5",
                "e9",
                "%",
                "½",
                "not ",
                "\n",
                " ",
                "**",
                "$",
                "```json\n",
                '{"answer": ',
                '"x"',
                "]",
                "[",
                "Score: ",
            ),
            *(
                "4/5",
                "4 out of ",
                "9" * 4400,
                "Verdict: ",
                "pass",
                "tie",
                "A",
                "日",
                "\u202e",
                "\x00",
                "Q: ",
                "or ",
                "\\",
                "10^",
                "−",
            ),
        ]
    )
    | st.text(max_size=4),
    max_size=14,
).map("".join)
_FORMS: dict[str, st.SearchStrategy[bytes]] = {
    "jsonl": LINES,
    "csv": st.lists(
        st.lists(
            st.sampled_from([*map(str, ODD[:15]), '"', "a,b", "q1", "1", "yes", ""]) | st.text(max_size=6),
            min_size=1,
            max_size=5,
        ).map(",".join),
        max_size=5,
    ).map(lambda rows: "\n".join(["id,output,reference,passed,score", *rows]).encode("utf-8", "replace")),
    "parquet": _of((as_parquet, good.LONG[:2]), (as_parquet, [{"id": "a", "reference": "4", "outputs": ["4", "5"]}])),
    "lm_eval": _of((as_lines, good.LM_EVAL), (as_lines, good.LM_EVAL_OPTIONS)),
    "evalplus": _of((as_json, good.EVALPLUS), (as_json, good.EVALPLUS_OLD)),
    "human_eval": _of((as_lines, good.HUMAN_EVAL)),
    "inspect": _of((as_json, good.INSPECT), (as_zip, good.INSPECT)),
    "promptfoo": _of((as_json, good.PROMPTFOO), (as_lines, good.PROMPTFOO["results"]["results"])),  # type: ignore[index]
    "openai_evals": _of((as_lines, good.EVALS)),
    "helm": _of((as_json, good.HELM_STATE)),
    "nemo_skills": _of((as_lines, good.NEMO)),
    "lighteval": _of((as_parquet, good.LIGHTEVAL), (as_parquet, good.LIGHTEVAL_OLD)),
    "hf_dataset": _of((as_arrow, good.LONG[:2])),
    "repeats": _joined(_of((as_lines, good.NEMO)), _of((as_lines, good.NEMO))),
    "folder-helm": _joined(*(_of((as_json, one)) for one in (good.HELM_STATE, good.HELM_STATS, good.HELM_SPEC))),
    "folder-lm_eval": _joined(_of((as_lines, good.LM_EVAL)), _of((as_json, good.LM_EVAL_RESULTS))),
    "folder-nemo_skills": _joined(_of((as_lines, good.NEMO)), _of((as_lines, good.NEMO))),
    "task": _joined(_yaml(good.TASK), _of((as_lines, good.QUESTIONS))),
    "problem": _joined(*map(_yaml, good.PROBLEM[:3]), _of((as_lines, [json.loads(good.PROBLEM[3])]))),
    "rubric": _yaml(good.RUBRIC),
    "selector": _yaml(good.SELECTOR),
    "prices": _yaml(good.PRICES),
    "labels": _of((as_lines, [{"id": "a", "human": 1, "judge": True, "index": 0, "weight": 1, "segment": "x"}] * 2)),
    "progress": _of((as_json, good.PROGRESS)),
    "text": TEXTS.map(lambda t: t.encode("utf-8", "replace")),
    "verdict": TEXTS.map(lambda t: t.encode("utf-8", "replace")),
    "number": TEXTS.map(lambda t: t.encode("utf-8", "replace")),
    "openai": st.one_of(_of((as_json, one)) for one in good.OPENAI).map(lambda b: b"200\n" + b),
    "anthropic": st.one_of(_of((as_json, one)) for one in good.ANTHROPIC).map(lambda b: b"200\n" + b),
}


def inputs(form: str) -> st.SearchStrategy[bytes]:
    """What to give a target of this form: bent trees where the form is known, and broken bytes."""
    plain = st.sampled_from(good.seeds()[form]).flatmap(broken)
    if form == "run":
        return _joined(*(bent(json.loads(part)).map(as_json) for part in good.seeds()["run"][0].split(SEPARATOR)))
    return st.one_of(_FORMS[form], _FORMS[form], plain) if form in _FORMS else plain
