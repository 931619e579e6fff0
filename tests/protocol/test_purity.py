"""What nodes do not know, and what they do not do."""

import ast
import sys
from pathlib import Path

import pytest

import shardlog.protocol as package
from protocol.harness import chain, fenced, follower, sent
from shardlog.protocol.messages import Fence
from shardlog.protocol.replica import HANDLERS
from shardlog.protocol.states import Role

HOME = Path(package.__file__).parent
METADATA = {"shard", "coordination", "coordinator", "coordinator_state"}
JUDGES = {"suspicion", "electing", "tending", "reconfiguring", "choice", "placement"}
IMPURE = {"asyncio", "datetime", "logging", "os", "random", "socket", "threading", "time"}


def imports(module: str) -> set[str]:
    """The modules that it names, those of the protocol by their last part."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((HOME / f"{module}.py").read_text())):
        if isinstance(node, ast.Import) or (
            isinstance(node, ast.ImportFrom) and node.module == package.__name__
        ):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.removeprefix(f"{package.__name__}."))
    return found


def reachable(module: str) -> set[str]:
    found, waiting = set(), [module]
    while waiting:
        each = waiting.pop()
        if each not in found and (HOME / f"{each}.py").exists():
            found.add(each)
            waiting += imports(each)
    return found


def test_O8_a_replica_knows_no_metadata():
    assert not reachable("replica") & METADATA


def test_O8_a_replica_judges_nobody():
    assert not reachable("replica") & JUDGES


def test_O8_the_coordinator_knows_both():
    assert reachable("coordinator") >= METADATA | JUDGES - {"placement"}, "the test looks right"


@pytest.mark.parametrize("role", [Role.FENCED, Role.FOLLOWER, Role.STANDBY])
def test_O8_a_replica_that_hears_nothing_does_nothing(role):
    node = fenced() if role is Role.FENCED else follower(chain([1]), standby=role is Role.STANDBY)
    for _ in range(100):
        assert node.tick(60_000) == []
    assert node.replica.role is role


def test_O8_no_replica_fences_another():
    assert Fence in HANDLERS
    sources = [(HOME / f"{module}.py").read_text() for module in reachable("replica")]
    assert not any("Fence(" in source.replace("class Fence(", "") for source in sources)


def test_O8_protocol_is_pure():
    modules = [path.stem for path in HOME.glob("*.py") if path.stem != "__init__"]
    assert modules
    for module in modules:
        outside = {name.partition(".")[0] for name in imports(module)} - set(modules)
        outside -= {"shardlog"}
        assert outside <= set(sys.stdlib_module_names), module
        assert not outside & IMPURE, module


def test_nothing_is_sent_before_it_was_asked():
    assert not sent(fenced().tick(1000), object)
