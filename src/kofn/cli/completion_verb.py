"""`kofn completion bash|zsh|fish`: a script by which a shell completes verbs, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from kofn.cli.verb_options import VerbCommand

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=VerbCommand)
@click.argument("shell", type=click.Choice(SHELLS))
def completion_command(shell: str) -> None:
    """Print a script that completes verbs, options and values.

    \b
    bash  add to ~/.bashrc:  eval "$(kofn completion bash)"
    zsh   add to ~/.zshrc:   eval "$(kofn completion zsh)"
    fish  run once:          kofn completion fish > ~/.config/fish/completions/kofn.fish
    """
    root = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None
    # not `source()`, which for bash starts bash to learn its version
    complete = kind(root.command, {}, "kofn", "_KOFN_COMPLETE")
    click.echo(complete.source_template % complete.source_vars())
