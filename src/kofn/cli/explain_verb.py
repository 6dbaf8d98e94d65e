"""`kofn explain [CODE]`: what a warning means, why it matters and what to do; without a code, the list of them."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

import click

from kofn.cli.colors import style
from kofn.core.warning_codes import KINDS, SEVERITIES
from kofn.core.warnings import warning_kind

if TYPE_CHECKING:
    from kofn.core.warning_codes import WarningKind

_WIDTH = 100


@click.command("explain")
@click.argument("code", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(code: str | None, as_json: bool) -> None:
    """What a warning means, why it matters, and what to do.

    CODE is the code of a warning, as `--json` and run.json have it in `coded_warnings`. Without one all are listed.
    """
    kinds = KINDS if code is None else {code: warning_kind(code)}
    if as_json:
        import orjson

        click.echo(orjson.dumps({"warnings": [_entry(*one) for one in kinds.items()]}, option=orjson.OPT_INDENT_2))
    elif code is not None:
        click.echo("\n".join(_lines(code, kinds[code])))
    else:
        width = max(map(len, kinds))
        for name, kind in kinds.items():
            severity = style(kind.severity.ljust(7), _ROLES[kind.severity])
            first = kind.explanation.partition(". ")[0]
            click.echo(f"{name.ljust(width)}  {severity}  {first}")


_ROLES = {"info": "dim", "warning": "warn", "error": "bad"}


def _entry(code: str, kind: WarningKind) -> dict[str, str]:
    return {"code": code, "severity": kind.severity, "explanation": kind.explanation}


def _lines(code: str, kind: WarningKind) -> list[str]:
    return [
        f"{style(code, 'strong')}  {style(kind.severity, _ROLES[kind.severity])}: {SEVERITIES[kind.severity]}",
        "",
        *wrap(kind.explanation, _WIDTH),
    ]
