"""`examples/`, applied in the order of its README: what each is said to do is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.cluster.release import Release
from e2e.images import ROOT

Json = Any
EXAMPLES = ROOT / "examples"
SHARD = "orders"
ASK = """
import json, sys, urllib.request
method, path, body = sys.argv[1:]
url = f"http://order-service{path}"
request = urllib.request.Request(url, body.encode() or None, method=method)
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""


@pytest.fixture
def examples(release: Release) -> Iterator[Path]:
    """Whatever a test applies is gone at the end, records included."""
    try:
        yield EXAMPLES
    finally:
        for name in ("spark-job.yaml", "snapshot.yaml"):
            release.kubectl("delete", "-f", str(EXAMPLES / name), "--ignore-not-found")
        release.kubectl("delete", "-k", str(EXAMPLES / "order-service"), "--ignore-not-found")
        if release.get("shard", SHARD):
            policy = json.dumps({"spec": {"deletionPolicy": "Delete"}})
            release.kubectl("patch", f"shard/{SHARD}", "--type=merge", f"--patch={policy}")
            release.kubectl("delete", f"shard/{SHARD}", "--timeout=120s")


def test_examples_are_applied(release: Release, examples: Path):
    release.kubectl("apply", "-f", str(examples / "shard.yaml"))
    release.kubectl("wait", "--for=condition=Ready", f"shard/{SHARD}", "--timeout=120s")
    orders_are_placed(release, examples / "order-service")

    release.kubectl("apply", "-f", str(examples / "snapshot.yaml"))
    release.kubectl(
        "wait", "--for=condition=Complete", "shardsnapshot/orders-first", "--timeout=180s"
    )
    (taken,) = release.listed("shardsnapshots")
    assert taken["status"]["range"]["end"] > 0

    release.load_spark_image()
    release.kubectl("apply", "-f", str(examples / "spark-job.yaml"))
    release.kubectl("wait", "--for=condition=Complete", "job/orders-profile", "--timeout=240s")
    lines = release.kubectl("logs", "job/orders-profile").splitlines()
    assert ["records", "4"] in [line.split()[:2] for line in lines], lines


def orders_are_placed(release: Release, directory: Path) -> None:
    """Four records, some after the leader was lost; both processes tell the same of them."""
    release.kubectl("apply", "-k", str(directory))
    release.kubectl("rollout", "status", "deployment/order-service", "--timeout=120s")
    pods = [each["metadata"]["name"] for each in release.listed("pods", "app=order-service")]
    assert len(pods) == 2

    def ask(pod: str, method: str, path: str, body: str = "") -> Json:
        command = ("exec", pod, "--", "python3", "-c", ASK, method, path, body)
        return json.loads(release.kubectl(*command))

    tea = ask(pods[0], "POST", "/orders", json.dumps({"item": "tea", "quantity": 2}))
    cake = ask(pods[1], "POST", "/orders", json.dumps({"item": "cake", "quantity": 1}))
    release.kubectl("delete", "pod", release.status(SHARD)["leader"], "--wait=false")
    last = ask(pods[0], "POST", f"/orders/{tea['id']}/cancel")
    ask(pods[1], "POST", "/orders", json.dumps({"item": "milk", "quantity": 1}))
    for _ in range(4):
        after = f"?after={last['offset']}"
        told = ask(pods[0], "GET", f"/orders/{tea['id']}{after}")
        assert told == {"id": tea["id"], "state": "cancelled", "item": "tea", "quantity": 2}
        assert ask(pods[1], "GET", f"/orders/{cake['id']}{after}")["state"] == "placed"
    release.until_whole()
