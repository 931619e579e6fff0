"""Both event loops that a node may run on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

Run = Callable[[Coroutine[Any, Any, Any]], Any]
TEST_S_MAX = 60


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine to its end on a loop of its own, and fails if it hangs."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    def run_it(coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine, TEST_S_MAX)

        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(bounded())

    return run_it
