"""Judges that need no key: they stand in for a model that was told to grade replies, and err as such judges do.

`kofn judge --model fake:house_judge:polite` calls the function with the whole prompt, as any model is called.
"""

from __future__ import annotations

import re

WHEN = re.compile(r"\b(today|within|Thursday|Friday|now)\b")


def polite(prompt: str) -> str:
    """The first judge: likes a reply that names an order, says what happens when, is polite, and is long.

    >>> polite("Order 77 is late.\\n<<<\\nDear Ms Costa, order 77 arrives today.\\n>>>")
    'It names an order and says what happens.\\nScore: 3'
    """
    reply = _reply(prompt)
    order, when = re.search(r"order \d+", reply, re.IGNORECASE), WHEN.search(reply)
    score = 1 + sum(map(bool, (order, when, re.search(r"sorry|apolog", reply), len(reply) > 230)))
    told = " and ".join([*(["names an order"] if order else []), *(["says what happens"] if when else [])])
    return f"It {told or 'says little'}.\nScore: {score}"


def careful(prompt: str) -> str:
    """The second: the order must be the customer's, and something must happen. What is promised it does not check.

    >>> careful("Order 77 is late.\\n<<<\\nDear Ms Costa, order 78 arrives today.\\n>>>")
    'The customer writes of order 77, the reply of 78.\\nScore: 2'
    """
    reply = _reply(prompt)
    asked, named = (re.search(r"order (\d+)", text, re.IGNORECASE) for text in (prompt, reply))
    if asked is None or named is None or asked[1] != named[1]:
        return f"The customer writes of order {asked and asked[1]}, the reply of {named and named[1]}.\nScore: 2"
    return f"The order is the right one.\nScore: {5 if WHEN.search(reply) else 3}"


def _reply(prompt: str) -> str:
    return max(re.findall(r"Dear .*", prompt), key=len, default="")
