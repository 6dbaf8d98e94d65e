"""`kofn list [KIND]`"""

from __future__ import annotations

import click

KINDS = ("aggregators", "extractors", "metrics")


@click.command("list")
@click.argument("kind", required=False, type=click.Choice(KINDS))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(kind: str | None, as_json: bool) -> None:
    """List what can be named, with one line each."""
    from kofn.registry import entries

    found = {k: entries(k.removesuffix("s")) for k in KINDS if kind in (None, k)}
    if as_json:
        import orjson

        rows = {k: [e._asdict() for e in es] for k, es in found.items()}
        click.echo(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
        return
    width = max(len(e.name) for es in found.values() for e in es)
    for name, es in found.items():
        click.echo(click.style(name, bold=True))
        for e in es:
            origin = f" (from {e.origin})" if e.origin else ""
            click.echo(f"  {e.name.ljust(width)}  {e.summary}{origin}")
