"""The skip discipline of conftest.py, tried on small test suites of its own."""

from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py").read_text()

NEEDS_GO = """
    import pytest

    @pytest.mark.needs("go")
    def test_with_go():
        pass

    def test_without():
        pass
"""

# Skips that have nothing to do with `needs`, one for each way pytest offers.
OTHER_SKIPS = {
    "test_call": """
        import pytest

        def test_it():
            pytest.skip("not today, by test_call")
    """,
    "test_import": """
        import pytest

        pytest.importorskip("no_such_module", reason="not today, by test_import")
    """,
    "test_mark": """
        import pytest

        @pytest.mark.skip(reason="not today, by test_mark")
        def test_it():
            pass
    """,
    "test_module": """
        import pytest

        pytest.skip("not today, by test_module", allow_module_level=True)
    """,
    "test_unittest": """
        import unittest

        class TestIt(unittest.TestCase):
            @unittest.skip("not today, by test_unittest")
            def test_it(self):
                pass
    """,
}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty suite under our conftest, with nothing on PATH but what `provide` puts there."""
    pytester.makeconftest(CONFTEST)
    programs = pytester.mkdir("programs")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("REQUIRE_ALL", raising=False)
    return pytester


def provide(suite: pytest.Pytester, program: str) -> None:
    executable = suite.path / "programs" / program
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)


def run(suite: pytest.Pytester, *args: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider", *args)


@pytest.mark.parametrize("xdist", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_absent_program_is_skipped_and_listed(suite: pytest.Pytester, xdist: tuple[str, ...]):
    suite.makepyfile(NEEDS_GO)
    result = run(suite, *xdist)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*left out*", "1 skipped: needs go: apt-get install golang"])
    assert result.ret == pytest.ExitCode.OK


def test_present_program_is_used_and_nothing_is_listed(suite: pytest.Pytester):
    provide(suite, "go")
    suite.makepyfile(NEEDS_GO)
    result = run(suite)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*left out*")
    assert result.ret == pytest.ExitCode.OK


def test_every_absent_program_counts(suite: pytest.Pytester):
    provide(suite, "go")
    suite.makepyfile(NEEDS_GO.replace('"go"', '"go", "java"'))
    run(suite).stdout.fnmatch_lines(["1 skipped: needs java: apt-get install openjdk-17*"])


def test_unknown_program_is_an_error(suite: pytest.Pytester):
    suite.makepyfile(NEEDS_GO.replace('"go"', '"golang"'))
    result = run(suite)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*needs('golang'): not one of*"])


@pytest.mark.parametrize("xdist", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_require_all_fails_a_run_that_left_something_out(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, xdist: tuple[str, ...]
):
    monkeypatch.setenv("REQUIRE_ALL", "1")
    suite.makepyfile(NEEDS_GO)
    result = run(suite, *xdist)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["REQUIRE_ALL is set: a skip fails the run"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("xdist", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_require_all_knows_every_origin_of_a_skip(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, xdist: tuple[str, ...]
):
    monkeypatch.setenv("REQUIRE_ALL", "1")
    suite.makepyfile(**OTHER_SKIPS, test_runs="def test_runs(): pass")
    result = run(suite, *xdist)
    result.assert_outcomes(passed=1, skipped=len(OTHER_SKIPS))
    result.stdout.fnmatch_lines([f"1 skipped: not today, by {origin}" for origin in OTHER_SKIPS])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_require_all_passes_when_nothing_is_left_out(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("REQUIRE_ALL", "1")
    provide(suite, "go")
    suite.makepyfile(
        NEEDS_GO,
        test_expected="""
        import pytest

        @pytest.mark.xfail(reason="a known gap is not a skip")
        def test_gap():
            raise AssertionError
    """,
    )
    result = run(suite)
    result.assert_outcomes(passed=2, xfailed=1)
    assert result.ret == pytest.ExitCode.OK


def test_require_all_needs_no_terminal(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REQUIRE_ALL", "1")
    suite.makepyfile(NEEDS_GO)
    assert run(suite, "-p", "no:terminal").ret == pytest.ExitCode.TESTS_FAILED
