"""`kofn explain [CODE]`: what a warning means, why it matters and what to do; without a code, the list of them."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import click

from kofn.cli.verb_options import output_options, style
from kofn.core.warning_codes import KINDS, SEVERITIES
from kofn.core.warnings import warning_kind

if TYPE_CHECKING:
    from kofn.cli.verb_options import OutputTarget
    from kofn.core.warning_codes import WarningKind

_WIDTH = 100


@click.command("explain")
@click.argument("code", required=False)
@output_options()
def command(code: str | None, output: OutputTarget) -> None:
    """What a warning means, why it matters, and what to do.

    CODE is the code of a warning, as `--json` and run.json have it in `coded_warnings`. Without one all are listed.
    """
    kinds = KINDS if code is None else {code: warning_kind(code)}
    entries = [_entry(*one) for one in kinds.items()]
    lines = _lines(code, kinds[code]) if code is not None else []
    width = max(map(len, kinds))
    for name, kind in kinds.items() if code is None else ():
        severity = style(kind.severity.ljust(7), _ROLES[kind.severity])
        lines.append(f"{name.ljust(width)}  {severity}  {kind.explanation.partition('. ')[0]}")
    output.show_rows(entries, {"warnings": entries}, "\n".join(lines))


_ROLES = {"info": "dim", "warning": "warn", "error": "bad"}


def _entry(code: str, kind: WarningKind) -> dict[str, str]:
    return {"code": code, "severity": kind.severity, "explanation": kind.explanation}


def _lines(code: str, kind: WarningKind) -> list[str]:
    return [
        f"{style(code, 'strong')}  {style(kind.severity, _ROLES[kind.severity])}: {SEVERITIES[kind.severity]}",
        "",
        *wrap(kind.explanation, _WIDTH),
    ]
