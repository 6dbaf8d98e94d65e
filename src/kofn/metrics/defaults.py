"""The default metric of each extractor."""

from __future__ import annotations

import importlib.util


def default_metric(extractor_name: str) -> str:
    """Return the name of the metric that compares what an extractor finds.

    Numbers are compared as values, letters as options, boxed answers as mathematics, anything else as
    text. Without math-verify boxed answers are compared as values where both sides are numbers and as text
    where neither is, which misses only forms such as (x+1)^2 against x^2+2x+1.

    >>> default_metric("number"), default_metric("letter_first"), default_metric("last_line")
    ('numeric', 'choice', 'exact_match')
    """
    kind = extractor_name.split("(")[0].split("_")[0]
    if kind in ("math", "boxed"):
        known = importlib.util.find_spec("math_verify") is not None
        return "math_equal" if known else "numeric(or_exact=True)"
    return {"number": "numeric", "letter": "choice"}.get(kind, "exact_match")
