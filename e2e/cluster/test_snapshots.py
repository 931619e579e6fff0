"""ShardSnapshots: taken to a volume under load, shared, read back, refused, and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.cluster.pods import pod
from e2e.cluster.release import NAME, Release
from e2e.cluster.scenario import Scenarios
from shardlog.cli import exit_codes

Json = Any
PLACE = "file:///snapshots"
ARCHIVE = "archive"
"""The claim, and a pod that looks into it."""
BULK, MORE = 20_000, 1_000
OPERATORS = "app.kubernetes.io/component=operator"


def test_snapshots_are_taken_under_load(scenarios: Scenarios):
    """Operators are killed as soon as the Job is there: it goes on, and others tell of it."""
    release = scenarios.release
    with (
        scenarios.scenario("ShardSnapshots under load, operators killed", "snapped") as it,
        archive(release),
    ):
        acknowledged = it.clients.acknowledged()
        asked = release.plugin("snapshot", "create", it.shard, PLACE, "--claim", ARCHIVE,
                               "--name", "first", "--no-wait")  # fmt: skip
        assert asked.returncode == 0, asked.stderr
        release.until(lambda: status_of(release, "first").get("job"), "no Job is made")
        before = operators(release)
        it.break_by(
            lambda: release.kubectl(
                "delete", "pods", "-l", OPERATORS, "--grace-period=0", "--force"
            )
        )
        it.prove("operators", before, lambda: successors(release, before))
        taken = release.until(lambda: ended(release, "first"), "the snapshot does not end")
        assert taken["phase"] == "Succeeded", taken
        assert taken["records"] >= acknowledged
        it.prove("records in the snapshot", 0, lambda: taken["records"])
        assert verified(release, it.shard) == (taken["snapshot"], taken["records"])
        it.until_steady()


def test_snapshots_share_fail_and_go(release: Release):
    release.until_whole()
    release.create_shard("bulky", replicas=1)
    release.until(lambda: release.steady("bulky", 1), "bulky is not steady")
    try:
        with archive(release):
            append(release, BULK)
            one = snapshot(release, "one")
            assert (one["records"], one["shared"]["bytes"]) == (BULK, 0)
            append(release, MORE)
            two = snapshot(release, "two")
            assert two["records"] == BULK + MORE
            assert two["shared"]["bytes"] == one["bytes"]
            assert 0 < two["written"]["bytes"] < one["bytes"] / 4
            assert verified(release, "bulky") == (two["snapshot"], BULK + MORE)
            columns = release.kubectl("get", "shardsnapshot", "two").splitlines()[1].split()
            assert columns[:4] == ["two", "bulky", "Succeeded", str(two["range"]["end"])]

            refused(release)
            waits_for_its_secret(release)

            gone = release.plugin("snapshot", "delete", "two", "--data", "--yes")
            assert gone.returncode == 0, gone.stderr
            kept = release.plugin("snapshot", "delete", "one")
            assert kept.returncode == 0, kept.stderr
            assert verified(release, "bulky") == (one["snapshot"], BULK)
    finally:
        release.kubectl("delete", "shard/bulky", "--ignore-not-found", "--wait=false")


def refused(release: Release) -> None:
    in_archive(release, "touch /snapshots/in-the-way")
    done = release.plugin("snapshot", "create", "bulky", f"{PLACE}/in-the-way", "--claim", ARCHIVE,
                          "--name", "refused")  # fmt: skip
    assert done.returncode == exit_codes.REFUSED, done.stderr
    assert "/snapshots/in-the-way" in done.stderr.splitlines()[-1]
    status = status_of(release, "refused")
    (failed,) = [each for each in status["conditions"] if each["type"] == "Failed"]
    assert (failed["status"], failed["reason"]) == ("True", "DestinationRefused")
    assert "manifest" not in status
    events = release.until(
        lambda: [
            each
            for each in release.listed("events")
            if each["involvedObject"]["name"] == "refused"
            and each["reason"] == "DestinationRefused"
        ],
        "nobody told of it",
    )
    assert events[0]["type"] == "Warning"


def waits_for_its_secret(release: Release) -> None:
    release.plugin("snapshot", "create", "bulky", "s3://backups/logs", "--secret", "nowhere",
                   "--name", "waits", "--no-wait")  # fmt: skip
    release.until(
        lambda: 'secret "nowhere" not found' in status_of(release, "waits").get("message", ""),
        "nobody says that the Secret is missing",
    )
    job = status_of(release, "waits")["job"]
    release.plugin("snapshot", "delete", "waits")
    release.until(lambda: release.get("job", job) is None, f"Job {job} is still there")


# --- looking -------------------------------------------------------------------------------------


def status_of(release: Release, name: str) -> Json:
    return (release.get("shardsnapshot", name) or {}).get("status") or {}


def operators(release: Release) -> list[str]:
    return sorted(pod.uid for pod in release.pods("operator").values())


def successors(release: Release, before: list[str]) -> list[str]:
    """As many others, and none of them any more."""
    now = operators(release)
    return now if len(now) == len(before) and not set(now) & set(before) else []


def ended(release: Release, name: str) -> Json:
    status = status_of(release, name)
    return status if status.get("phase") in ("Succeeded", "Failed") else None


def snapshot(release: Release, name: str) -> Json:
    done = release.plugin("snapshot", "create", "bulky", PLACE, "--claim", ARCHIVE, "--name", name,
                          "-o", "json", "--timeout", "240")  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["status"]


def in_archive(release: Release, command: str) -> str:
    return release.kubectl("exec", ARCHIVE, "--", "sh", "-c", command)


def append(release: Release, count: int) -> None:
    in_archive(release, f"seq -f %0200.0f {count} | shardlog append bulky > /dev/null")


def verified(release: Release, shard: str) -> tuple[str, int]:
    """The newest there, read whole: which it is, and how many records it holds."""
    told = json.loads(in_archive(release, f"shardlog snapshot verify {shard} {PLACE} -o json"))
    assert told["damaged"] == []
    return told["id"], told["records"]


@contextmanager
def archive(release: Release) -> Iterator[None]:
    """A volume for snapshots, and a pod in which the commands can be run."""
    release.apply(_manifests(release.namespace))
    try:
        release.until(
            lambda: (pod := release.pod(ARCHIVE)) and pod.is_ready, f"{ARCHIVE} does not start"
        )
        yield
    finally:
        release.kubectl("delete", "shardsnapshots", "--all", "--timeout=60s")
        release.kubectl("delete", f"pod/{ARCHIVE}", f"pvc/{ARCHIVE}", "--timeout=60s")


def _manifests(namespace: str) -> list[Json]:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    metadata = {"name": ARCHIVE, "namespace": namespace}
    where = {"SHARDLOG_CLUSTER": f"http://{NAME}"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": claim},
        pod(namespace, ARCHIVE, ARCHIVE, ("sleep", "infinity"), where),
    ]
