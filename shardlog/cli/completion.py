"""`shardlog completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import rich_click as click

HOW = {
    "bash": 'eval "$(shardlog completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(shardlog completion zsh)"    # in ~/.zshrc',
    "fish": "shardlog completion fish | source     # in ~/.config/fish/config.fish",
}


@click.command(epilog="\b\n" + "\n\n".join(HOW.values()))
@click.argument("shell", type=click.Choice(list(HOW)))
def completion(shell: str) -> None:
    """Print the completion script for a shell; commands, options and names of shards complete."""
    from click.shell_completion import get_completion_class

    from shardlog.cli.main import main

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "shardlog", "_SHARDLOG_COMPLETE").source())
