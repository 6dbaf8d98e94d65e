"""`kofn view`: browses runs in a browser."""

# without `from __future__ import annotations`: all that annotations name is imported anyway
import sys
from pathlib import Path

import click

from kofn.api.options import SERVER
from kofn.cli.verb_options import OutputTarget, VerbCommand, output_options, tell, verb_option


@click.command("view", cls=VerbCommand)
@click.argument("directory", metavar="[DIR]", default="runs", type=click.Path(path_type=Path))
@verb_option("--port", type=click.IntRange(1, 65535), metavar="N", group=SERVER,
             help="Port (default: the first free one from 7717)")  # fmt: skip
@verb_option("--host", default="127.0.0.1", metavar="ADDRESS", group=SERVER,
             help="Address to listen on (default: 127.0.0.1; others need --token)")  # fmt: skip
@verb_option("--token", envvar="KOFN_VIEW_TOKEN", metavar="T", group=SERVER,
             help="Password of 16 characters or more, or `new` (default: $KOFN_VIEW_TOKEN)")  # fmt: skip
@verb_option("--open", "browse", is_flag=True, group=SERVER, help="Open it in the browser")
@output_options()
def view_command(
    directory: Path, port: int | None, host: str, token: str | None, browse: bool, output: OutputTarget
) -> None:
    """Look at runs in a browser: all of those in DIR (default: runs), or one.

    Pages are made from the run directories as they are; nothing is changed but labels that somebody gives. The server
    listens on this machine only, and makes no request to any other.
    """
    from kofn.viewer.server import serve

    if token == "new":  # noqa: S105 - the word that asks for one
        import secrets

        token = secrets.token_urlsafe(24)

    def announce(address: str) -> None:
        tell(f"{directory} at {address} (Ctrl-C ends it)")
        if output.form != "table" or output.path is not None:
            row = {"directory": str(directory), "address": address}
            output.show_rows([row], row, address)
            sys.stdout.flush()  # whoever started the server waits for this
        if browse:
            import webbrowser

            webbrowser.open(address)

    serve(directory, host=host, port=port, token=token, announce=announce)
