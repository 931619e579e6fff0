"""docs/local.md says what the commands do: every one in it exists, with these options."""

import re
from pathlib import Path

import pytest
import rich_click as click

from shardlog.cli import exit_codes
from shardlog.cli.main import main

DOCUMENT = (Path(__file__).parents[2] / "docs" / "local.md").read_text()
BLOCKS = re.findall(r"```\n(.*?)```", DOCUMENT, re.DOTALL)
LINES = sorted(
    {line for block in BLOCKS for line in block.splitlines() if line.startswith("shardlog ")}
)


def found(line: str) -> tuple[click.Command, list[str]]:
    """The command of a line, and the words that are left for it."""
    words = line.split()[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        inner = command.get_command(click.Context(command), words[0])
        assert inner is not None, line
        command, words = inner, words[1:]
    return command, words


@pytest.mark.parametrize("line", LINES)
def test_a_command_has_these_options(line: str):
    command, words = found(line)
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    named = {word.strip("[].") for word in words if word.strip("[").startswith("-")}
    assert named <= known, line


def test_every_command_is_there():
    for group in ("local", "shard", "ops"):
        command = main.get_command(click.Context(main), group)
        assert isinstance(command, click.Group)
        for name in command.list_commands(click.Context(command)):
            assert any(line.startswith(f"shardlog {group} {name}") for line in LINES), name


def test_exit_codes_are_ours():
    table = DOCUMENT.partition("## Exit status")[2]
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} <= set(codes)
