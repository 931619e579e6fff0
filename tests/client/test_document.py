"""docs/client.md: its programs run, and its tables say what the code says."""

import asyncio
import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from client.cluster import SHARD, Story, story
from shardlog.client import Client, ClientLimits, failures
from shardlog.client.failures import ClientFailure, DeadlineExceeded, Unavailable

DOCUMENT = Path(__file__).parents[2] / "docs" / "client.md"
TEXT = DOCUMENT.read_text()
PROGRAMS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def rows(heading: str) -> dict[str, list[str]]:
    """The rows of the table whose first column has this heading, by what stands there."""
    table = TEXT.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]
    ]
    return {row[0].strip("`"): row[1:] for row in found}


def test_there_are_programs():
    assert len(PROGRAMS) == 4


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_run(tmp_path: Path, program: str):
    @story(tmp_path)
    async def _(s: Story) -> None:
        assert "http://127.0.0.1:7300" in program
        text = program.replace("http://127.0.0.1:7300", s.cluster.url)
        await asyncio.to_thread(exec, compile(text, DOCUMENT.name, "exec"), {})
        assert await s.client.end(SHARD) > 0


def test_limits_are_those_of_the_code():
    told = {name: int(cells[0].strip("`")) for name, cells in rows("limit").items()}
    assert told == {field.name: field.default for field in fields(ClientLimits)}


def test_settings_of_a_producer_are_those_of_the_code():
    told = {name: cells[0].strip("`") for name, cells in rows("setting").items()}
    parameters = inspect.signature(Client.producer).parameters
    settings = {
        name: str(each.default)
        for name, each in parameters.items()
        if each.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert told == settings | {"compression": "Compression.NONE"}


def test_failures_are_those_of_the_code():
    kinds = [each for each in vars(failures).values() if inspect.isclass(each)]
    ours = {
        kind.__name__: ["yes" if kind.retriable else "no", "yes" if kind.fate_unknown else "no"]
        for kind in kinds
        if issubclass(kind, ClientFailure)
        and not issubclass(kind, Unavailable)
        and kind is not ClientFailure
    }
    ours[DeadlineExceeded.__name__][1] = "as it says"
    assert {name: cells[:2] for name, cells in rows("failure").items()} == ours
