"""docs/warnings.md, made from the registry: `python -m tests.repository.warnings_page` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

from kofn.core.warnings import SEVERITIES, warning_kinds

PAGE = Path(__file__).parents[2] / "docs" / "warnings.md"
HEAD = """# Warnings

<!-- Made from src/kofn/core/warnings.toml by `python -m tests.repository.warnings_page`; a test compares them. -->

A warning is a value: a code that stays the same across versions, a severity, and the numbers and names that it
is about. The sentence is created where it is shown. JSON output and run.json contain the sentences in `warnings` and
the values, in the same order, in `coded_warnings`:

```json
{"code": "few-cases", "severity": "warning", "values": {"n": 12}}
```

`subject` is present if a warning is about one file, judge or system. In Python, `result.warnings` contains them:
`warning.code`, `warning.severity`, `warning.values`, and `str(warning)` for the sentence. `kofn explain CODE` prints
the entry of this page, and [`kofn check --fail-on CODE`](check.md) fails on it:

```console
$ kofn explain few-cases
few-cases  warning: ...
...
$ kofn score examples/arithmetic.jsonl --top-k 1 --out runs/short
$ kofn check runs/short --policy any --fail-on few-cases
2 of 2 requirements passed: any: ...
✓ any: ...
✓ no warning few-cases: there is none
```

| severity | meaning |
|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = "\n".join(f"| {name} | {text} |" for name, text in SEVERITIES.items())
    sections = [f"### {code}\n\n*{kind.severity}.* {kind.explanation}\n" for code, kind in warning_kinds().items()]
    return f"{HEAD}{rows}\n\n## Codes\n\n" + "\n".join(sections)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stderr.write(f"{PAGE} written\n")
