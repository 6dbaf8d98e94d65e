"""Multiple choice by log-likelihood in an lm-evaluation-harness log: one candidate per repeat, the chosen option.

A request is one option; its responses are pairs (log-likelihood, whether it is the greedy continuation), one per
repeat. The chosen option is the likeliest, as the tool's `acc` has it, the first of equal ones.
"""

from __future__ import annotations

import ast
import math
from typing import TYPE_CHECKING, Any

from kofn.errors import InputError
from kofn.extract.letter_answer import parse_choices

if TYPE_CHECKING:
    from collections.abc import Sequence

_PAIR = 2  # (log-likelihood, greedy)


def is_likelihood(requests: Sequence[Sequence[Any]]) -> bool:
    """Whether the responses are pairs (log-likelihood, greedy) and not texts."""
    responses = [response for request in requests for response in request]
    return bool(responses) and all(isinstance(r, (list, tuple)) and len(r) == _PAIR for r in responses)


def choice_row(
    requests: Sequence[Sequence[Any]], arguments: Sequence[Sequence[Any]], target: Any, where: str
) -> dict[str, Any]:
    """The columns of a line whose requests are options.

    resps      the text of the option chosen in each repeat; filtered: its label
    by_place, by_text    the labels of the right options where the target is their place, or their text
    loglik     of the chosen option in each repeat
    each.NAME  whether the option of each repeat is right by acc, acc_norm and acc_bytes, as the tool defines them
    """
    pairs = [[_pair(response, where) for response in request] for request in requests]
    if len({len(request) for request in pairs}) > 1:
        raise InputError(f"{where}: options with unequal numbers of repeats: the line is not as lm-eval writes it")
    if len(pairs) == 1:
        return _continuation(pairs[0], arguments, target)
    texts, whole, n = _options(arguments, len(pairs))
    repeats = [[request[r][0] for request in pairs[:n]] for r in range(len(pairs[0]))]
    labels = _labels(texts)
    picks = [_best(repeat) for repeat in repeats]
    by_place, by_text = _golds(target, texts)
    golds = by_place if by_place is not None else by_text
    row: dict[str, Any] = {
        "likelihood": True,
        "choices": texts if len(labels) == len(texts) and labels != texts else None,
        "resps": [texts[i] for i in picks],
        "filtered": [labels[i] for i in picks],
        "by_place": None if by_place is None else [labels[i] for i in by_place],
        "by_text": None if by_text is None else [labels[i] for i in by_text],
        "loglik": [repeat[i] for repeat, i in zip(repeats, picks, strict=True)],
    }
    if len(repeats) > 1 and golds is not None:
        row |= _each(repeats, golds, whole)
    return row


def _continuation(
    responses: Sequence[tuple[float, bool]], arguments: Sequence[Sequence[Any]], target: Any
) -> dict[str, Any]:
    """One text whose likelihood was requested: it is the output where it is the greedy one, else none is known."""
    text = str(arguments[0][1]) if arguments and len(arguments[0]) > 1 else str(target)
    greedy = [right for _, right in responses]
    row: dict[str, Any] = {
        "likelihood": True,
        "target": None if target is None else str(target),
        "resps": [text if right else None for right in greedy],
        "loglik": [value for value, _ in responses],
    }
    return row | ({"each.acc": [float(right) for right in greedy]} if len(greedy) > 1 else {})


def _pair(response: Any, where: str) -> tuple[float, bool]:
    value, greedy = response
    try:
        return float(value), str(greedy) == "True"
    except (TypeError, ValueError):
        raise InputError(f"{where}: resps: expected a log-likelihood, found {value!r:.40}") from None


def _options(arguments: Sequence[Sequence[Any]], n: int) -> tuple[list[str], list[str], int]:
    """(the options' texts stripped, as they were scored, how many there are).

    Requests without a context in the second half are those of `acc_mutual_info`, which lm-eval appends. Where the
    continuations are all the same the contexts differ, and what differs in them is the option (as in WinoGrande).
    """
    pairs = [(str(a[0]), str(a[1])) for a in arguments if len(a) > 1]
    if len(pairs) != n:
        names = [str(place) for place in range(n)]
        return names, names, n
    half = n // 2
    if n % 2 == 0 and all(not context for context, _ in pairs[half:]) and all(context for context, _ in pairs[:half]):
        n, pairs = half, pairs[:half]
    whole = [text for _, text in pairs]
    if len(set(whole)) == 1 and n > 1:
        shared = _shared([context for context, _ in pairs])
        whole = [context[shared:] for context, _ in pairs]
    return [text.strip() for text in whole], whole, n


def _shared(texts: Sequence[str]) -> int:
    """The length of the prefix that all texts share.

    >>> _shared(["He lost", "He left"])
    4
    """
    low, high = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))


def _labels(texts: list[str]) -> list[str]:
    """The options' labels; their texts where there are not enough letters, or two labels are equal."""
    labels = list(parse_choices(texts).labels)
    return labels if len(set(labels)) == len(texts) else texts


def _best(values: Sequence[float]) -> int:
    """The place of the largest, the first of equal ones."""
    return max(range(len(values)), key=lambda i: values[i])


def _golds(target: Any, texts: Sequence[str]) -> tuple[list[int] | None, list[int] | None]:
    """The places of the right options, read as places and read as texts; a target may be several."""
    targets = _targets(target)
    places = [int(t) for t in targets if t.isdecimal() and int(t) < len(texts)]
    by_text = [texts.index(t.strip()) for t in targets if t.strip() in texts]
    return (
        places if targets and len(places) == len(targets) else None,
        by_text if targets and len(by_text) == len(targets) else None,
    )


def _targets(target: Any) -> list[str]:
    """The targets of a line as texts; a list may be written as Python text."""
    if isinstance(target, str) and target.startswith("[") and target.endswith("]"):
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError):
            return [target]
    if target is None:
        return []
    return [str(t) for t in target] if isinstance(target, (list, tuple)) else [str(target)]


def _each(repeats: Sequence[Sequence[float]], golds: Sequence[int], whole: Sequence[str]) -> dict[str, list[float]]:
    """1 or 0 for each repeat by each of the tool's three accuracies.

    As in lm-eval's `process_results`: acc_norm divides by characters, acc_bytes by bytes, each without the space that
    the tool puts before an option.
    """
    bare = [text.removeprefix(" ") for text in whole]
    lengths: dict[str, list[float]] = {
        "acc": [1.0] * len(bare),
        "acc_norm": [len(t) for t in bare],
        "acc_bytes": [len(t.encode()) for t in bare],
    }
    out: dict[str, list[float]] = {}
    for name, sizes in lengths.items():
        scaled = [[v / s if s else -math.inf for v, s in zip(values, sizes, strict=True)] for values in repeats]
        out[f"each.{name}"] = [float(_best(values) in golds) for values in scaled]
    return out
