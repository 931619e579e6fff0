"""The root command: finding command groups, and the exit code of every way out."""

import sys
from types import ModuleType

import click
import pytest
from click.testing import CliRunner, Result

from shardlog import __version__
from shardlog.cli import exit_codes
from shardlog.cli.main import main


def leave_by(error: BaseException | None, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run `shardlog sim go` with a `sim` group whose command raises `error`."""

    @click.group()
    def sim() -> None:
        """A stand-in."""

    @sim.command()
    def go() -> None:
        if error is not None:
            raise error

    module = ModuleType("shardlog.cli.sim")
    module.sim = sim  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return CliRunner().invoke(main, ["sim", "go"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, exit_codes.OK),
        (click.UsageError("no such seed"), exit_codes.USAGE),
        (click.ClickException("no such file"), exit_codes.USAGE),
        (click.exceptions.Exit(exit_codes.SAFETY), exit_codes.SAFETY),
        (SystemExit(exit_codes.LIVENESS), exit_codes.LIVENESS),
        (AssertionError("head moved back"), exit_codes.CRASH),
        (KeyboardInterrupt(), exit_codes.INTERRUPTED),
        (click.Abort(), exit_codes.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else str(value),
)
def test_exit_code(error: BaseException | None, code: int, monkeypatch: pytest.MonkeyPatch):
    assert leave_by(error, monkeypatch).exit_code == code


def test_a_crash_shows_its_traceback(monkeypatch: pytest.MonkeyPatch):
    assert "head moved back" in leave_by(AssertionError("head moved back"), monkeypatch).stderr


def test_version():
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"shardlog, version {__version__}\n"


def test_help_lists_the_command_groups():
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == exit_codes.OK
    assert "sim" in result.output


@pytest.mark.parametrize("args", [["no-such-command"], ["--no-such-option"]])
def test_wrong_usage(args: list[str]):
    assert CliRunner().invoke(main, args).exit_code == exit_codes.USAGE


def test_codes_are_distinct():
    codes = [value for name, value in vars(exit_codes).items() if name.isupper()]
    assert len(codes) == len(set(codes)) == 11
