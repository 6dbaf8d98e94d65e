"""The sandbox and the engine that the options of `kofn verify` ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kofn.parallel.base import ParallelEngine
    from kofn.sandbox.base import Sandbox


def open_sandbox(options: dict[str, Any]) -> Sandbox:
    """The sandbox that the options ask for."""
    from kofn.sandbox.drivers import find_sandbox

    if options["unsafe"]:
        click.echo(
            click.style("! --unsafe: programs run as you, and see your files and network", fg="yellow"), err=True
        )
    return find_sandbox(unsafe=options["unsafe"], python=options["python"], show=options["shown"])


def open_engine(options: dict[str, Any]) -> ParallelEngine:
    """The engine that the options ask for."""
    from kofn.parallel import engine

    if options["engine_name"] != "ray" and (options["ray_address"] or options["shared"]):
        raise click.UsageError("--ray-address and --shared are for --engine ray")
    return engine(
        options["engine_name"],
        workers=options["workers"],
        ray_address=options["ray_address"],
        shared_path=options["shared"],
    )
