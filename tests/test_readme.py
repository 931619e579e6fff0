"""Every command in README.md and other pages is run, as a newcomer would, in a home of its own.

Blocks marked `sh` are commands, one on a line; blocks marked `python` are programs.  Those of
docs/cli.md and docs/snapshots.md are run before the README takes its cluster down.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from shardlog.cli.main import main
from shardlog.local.layout import Layout
from shardlog.local.taking_down import stop_all

pytestmark = pytest.mark.xdist_group("local clusters")

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CLI = (ROOT / "docs" / "cli.md").read_text()
SNAPSHOTS = (ROOT / "docs" / "snapshots.md").read_text()
PROGRAMS = Path(sys.executable).parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_TIMEOUT_S = 120

Step = tuple[str, str]
"""What it is, and the command or the program."""


def steps(document: str) -> Iterator[Step]:
    for kind, text in BLOCK.findall(document):
        if kind == "python":
            yield kind, text
        else:
            for line in text.splitlines():
                yield kind_of(line), line


def kind_of(line: str) -> str:
    if line.startswith("make "):
        return "make"
    if line.startswith(". "):
        return "activate"
    return "follow" if " -f " in line else "sh"


class Newcomer:
    """Types what the documents say."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.layout = Layout(home / ".shardlog" / "local")
        self.environment = {
            **{name: value for name, value in os.environ.items() if "SHARDLOG" not in name},
            "HOME": str(home),
            "TMPDIR": str(home),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        }

    def do(self, kind: str, text: str) -> None:
        match kind:
            case "make":
                self.make(text)
            case "activate":
                assert "VENV := .venv\n" in (ROOT / "Makefile").read_text()
                assert text == ". .venv/bin/activate"
            case "follow":
                self.follow(text)
            case "python":
                self.run([sys.executable, "-c", text])
            case _:
                self.run(["bash", "-o", "pipefail", "-c", text])

    def run(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_TIMEOUT_S,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def make(self, text: str) -> None:
        """What it would do: this test is part of `make test`, and the demo is run by cli.md."""
        target = text.split()[1]
        planned = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        wanted = {"demo": ".venv/bin/shardlog demo", "test": ".venv/bin/pytest"}[target]
        assert any(line.startswith(wanted) for line in planned.splitlines())

    def follow(self, text: str) -> None:
        """Until Ctrl-C."""
        with subprocess.Popen(
            text.split(), cwd=self.home, env=self.environment, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.stdout.read()
        assert process.returncode == 130


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    newcomer = Newcomer(tmp_path)
    try:
        yield newcomer
    finally:
        stop_all(newcomer.layout, 1000)


def is_demo(step: Step) -> bool:
    return step[1].startswith("shardlog demo")


def test_every_command_but_the_demo(newcomer: Newcomer):
    readme, cli = list(steps(README)), [each for each in steps(CLI) if not is_demo(each)]
    down = next(at for at, (_, text) in enumerate(readme) if text == "shardlog local down")
    assert len(readme) > 15
    assert len(cli) > 10
    snapshots = list(steps(SNAPSHOTS))
    assert len(snapshots) > 6
    for kind, text in [*readme[:down], *cli, *snapshots, *readme[down:]]:
        newcomer.do(kind, text)
    assert not newcomer.layout.directory.exists()


def test_the_demo(newcomer: Newcomer):
    """`make demo` is this command."""
    ((_, text),) = filter(is_demo, steps(CLI))
    shown = newcomer.run(["bash", "-c", text])
    acts = re.findall(r"^✓ (.{20})", shown, re.MULTILINE)
    wanted = ["cluster up", "create", "append", "kill -9", "node-", "expand 3 to 5",
              "contract 5 to 3", "swap", "read everything back", "cluster down"]  # fmt: skip
    assert [act for act, start in zip(acts, wanted, strict=True) if not act.startswith(start)] == []
    assert "lost, doubled, moved, foreign     0, 0, 0, 0\n" in shown
    assert "exactly once, and in order" in shown
    assert sorted(path.name for path in newcomer.home.iterdir()) == ["demo.svg"]
    picture = (newcomer.home / "demo.svg").read_text()
    assert "exactly&#160;once" in picture
    assert "https://cdn" not in picture


@pytest.mark.parametrize("name", ["append", "read", "tail", "demo"])
def test_every_option_is_described(name: str):
    command = main.get_command(None, name)  # type: ignore[arg-type]
    assert command is not None
    for parameter in command.params:
        for option in parameter.opts:
            if option.startswith("--"):
                assert f"`{option}" in CLI or f" {option}" in CLI, option


@pytest.mark.parametrize("name", ["create", "list", "verify", "delete", "restore"])
def test_every_option_of_snapshots_is_described(name: str):
    group = main.get_command(None, "snapshot")  # type: ignore[arg-type]
    assert isinstance(group, click.Group)
    shared = {"--cluster", "--timeout", "--output", "--yes"}
    for parameter in group.commands[name].params:
        for option in parameter.opts:
            if option.startswith("--") and option not in shared:
                assert f"`{option}" in SNAPSHOTS, option


@pytest.mark.parametrize(
    "document", ["README.md", "docs/README.md", "docs/cli.md", "docs/snapshots.md"]
)
def test_links_lead_somewhere(document: str):
    path = ROOT / document
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text())
    assert targets
    assert [each for each in targets if not (path.parent / each).exists()] == []
