"""ShardSnapshots from their creation to their end: nodes, operators and the command are real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from kube_operator.installation import Installation, shard_body
from kube_operator.job_pods import JobPods, snapshot_body, template_body
from shardlog.client import Client
from shardlog.snapshots.archive import Archive
from shardlog.snapshots.destination import Destination
from shardlog.snapshots.verifying import verify
from shardlog_operator.snapshot_spec import SNAPSHOT_FINALIZER

Json = Any
TEMPLATE = "pods"
RECORDS = [b"%06d" % number for number in range(500)]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


@asynccontextmanager
async def installed(
    tmp_path: Path, operators: int = 1, nodes: str = "node-0"
) -> AsyncIterator[tuple[Installation, JobPods]]:
    async with Installation(tmp_path, nodes).running(operators=0) as it:
        await it.api.create("podtemplates", template_body(TEMPLATE))
        for number in range(operators):
            await it.start_operator(f"operator-{number}", snapshot_template=TEMPLATE)
        yield it, JobPods(it, tmp_path / "volume")


async def filled(it: Installation, records: list[bytes] = RECORDS) -> None:
    url = f"http://{it.operator.address}"
    async with Client(url) as client, client.producer("orders") as producer:
        await producer.append_many(records)


async def with_shard(it: Installation) -> None:
    await it.api.create("shards", shard_body(replicas=1))
    await it.ready(replicas=1)
    await filled(it)


async def ended(pods: JobPods, name: str, phase: str) -> Json:
    status = await pods.it.api.until(
        lambda: (
            pods.snapshot(name)
            if pods.snapshot(name).get("phase") not in (None, "Pending", "Running")
            else None
        )
    )
    assert status["phase"] == phase, status
    return status


def archive(pods: JobPods) -> Archive:
    return Archive(Destination(f"file://{pods.volume}"), "orders")


def condition(status: Json, kind: str) -> tuple[str, str]:
    found = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    return found[kind]


def test_taken_shared_and_expired(tmp_path: Path):
    """By two operators at once."""

    async def story() -> None:
        async with installed(tmp_path, operators=2) as (it, pods):
            await with_shard(it)
            await it.api.create("shardsnapshots", snapshot_body("first"))
            assert await pods.run(await pods.job_of("first")) == 0
            first = await ended(pods, "first", "Succeeded")
            assert condition(first, "Complete") == ("True", "Succeeded")
            assert condition(first, "Failed") == ("False", "Succeeded")
            assert (first["records"], first["range"]["start"]) == (len(RECORDS), 0)
            assert first["written"]["bytes"] == first["bytes"] > 0
            assert first["manifest"].endswith(f"orders/snapshots/{first['snapshot']}.json")
            assert first["startedAt"] <= first["completedAt"]
            body = it.api.get("shardsnapshots", "first")
            assert body["metadata"]["finalizers"] == [SNAPSHOT_FINALIZER]
            (job,) = it.api.all("jobs")
            assert job["metadata"]["ownerReferences"][0]["uid"] == body["metadata"]["uid"]

            kept = {"keep": 1}
            await it.api.create("shardsnapshots", snapshot_body("second", retention=kept))
            assert await pods.run(await pods.job_of("second")) == 0
            second = await ended(pods, "second", "Succeeded")
            assert second["shared"] == {"bytes": first["bytes"], "segments": first["segments"]}
            assert second["written"] == {"bytes": 0, "segments": 0}
            assert second["deleted"] == [first["snapshot"]]
            await it.api.until(lambda: pods.snapshot("first")["phase"] == "Expired")
            assert "second" in pods.snapshot("first")["message"]
            found = archive(pods)
            assert found.ids() == [second["snapshot"]]
            assert list(verify(found, found.manifest(second["snapshot"]))) == []
            await it.api.until(lambda: {"Running", "Succeeded", "Expired"} <= set(it.reasons()))
            metrics = f"http://{it.operator.address}/metrics"
            async with aiohttp.ClientSession() as session, session.get(metrics) as answer:
                told = await answer.text()
            assert 'shardlog_operator_snapshots{phase="Expired"} 1.0' in told

    run(story())


def test_what_the_destination_refuses_is_said(tmp_path: Path):
    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await with_shard(it)
            pods.volume.write_text("in the way")
            await it.api.create("shardsnapshots", snapshot_body("first"))
            assert await pods.run(await pods.job_of("first")) == 9
            status = await ended(pods, "first", "Failed")
            assert condition(status, "Failed") == ("True", "DestinationRefused")
            assert condition(status, "Complete")[0] == "False"
            assert str(pods.volume) in status["message"]
            assert "manifest" not in status
            await it.api.until(lambda: "DestinationRefused" in it.reasons())
            await it.api.delete("shardsnapshots", "first")
            await it.api.until(lambda: it.api.find("shardsnapshots", "first") is None)
            await it.api.until(lambda: it.api.all("jobs") == [])

    run(story())


def test_what_a_pod_waits_for_is_said(tmp_path: Path):
    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await with_shard(it)
            await it.api.create("shardsnapshots", snapshot_body("first"))
            job = await pods.job_of("first")
            await pods.waits(job, "CreateContainerConfigError", 'secret "keys" not found')
            await it.api.until(lambda: "keys" in pods.snapshot("first").get("message", ""))
            assert pods.snapshot("first")["phase"] == "Running"
            await it.api.until(lambda: "PodWaits" in it.reasons())
            assert await pods.run(job) == 0
            await ended(pods, "first", "Succeeded")

    run(story())


def test_an_operator_that_dies_is_followed_by_another(tmp_path: Path):
    """While its shard is not there, while its Job is refused, and while its Job runs."""

    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await it.api.create("shardsnapshots", snapshot_body("first"))
            await it.api.until(lambda: pods.snapshot("first").get("phase") == "Pending")
            it.api.forbidden.add("podtemplates")
            await with_shard(it)
            await it.api.until(
                lambda: condition(pods.snapshot("first"), "Complete")[1] == "ApiRefused"
            )
            assert "Forbidden" in pods.snapshot("first")["message"]
            await it.kill_operator("operator-0")
            assert it.api.all("jobs") == []
            it.api.forbidden.clear()
            await it.start_operator("operator-1", snapshot_template=TEMPLATE)
            job = await pods.job_of("first")
            await it.kill_operator("operator-1")
            await it.start_operator("operator-2", snapshot_template=TEMPLATE)
            await it.api.until(lambda: it.operator.address)
            assert await pods.run(job) == 0
            status = await ended(pods, "first", "Succeeded")
            assert archive(pods).ids() == [status["snapshot"]]

    run(story())


def test_a_report_that_is_lost_is_asked_for_again(tmp_path: Path):
    """The snapshot is there, under the name it was to have: it is not taken twice."""

    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await with_shard(it)
            await it.api.create("shardsnapshots", snapshot_body("first"))
            assert await pods.run(await pods.job_of("first"), leave_pod=False) == 0
            await filled(it)
            assert await pods.run(await pods.job_of("first")) == 0
            status = await ended(pods, "first", "Succeeded")
            assert status["records"] == len(RECORDS)
            assert (status["written"]["bytes"], status["shared"]["bytes"]) == (0, status["bytes"])
            assert archive(pods).ids() == [status["snapshot"]]

    run(story())


def test_the_data_go_with_it_if_asked_for(tmp_path: Path):
    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await with_shard(it)
            for name in ("kept", "deleted"):
                await it.api.create("shardsnapshots", snapshot_body(name))
                assert await pods.run(await pods.job_of(name)) == 0
                await ended(pods, name, "Succeeded")
            kept, deleted = pods.snapshot("kept"), pods.snapshot("deleted")
            await it.api.delete("shardsnapshots", "kept")
            await it.api.until(lambda: it.api.find("shardsnapshots", "kept") is None)
            policy = {"spec": {"deletionPolicy": "Delete"}}
            await it.api.change("shardsnapshots", "deleted", policy)
            await it.api.delete("shardsnapshots", "deleted")
            job = await pods.job_of("deleted", "delete")
            await it.api.until(lambda: pods.snapshot("deleted")["phase"] == "Deleting")
            assert condition(pods.snapshot("deleted"), "DataDeleted")[0] == "False"
            assert set(archive(pods).ids()) == {kept["snapshot"], deleted["snapshot"]}
            assert await pods.run(job) == 0
            await it.api.until(lambda: it.api.find("shardsnapshots", "deleted") is None)
            assert archive(pods).ids() == [kept["snapshot"]]
            await it.api.until(lambda: {"Retained", "Deleted"} <= set(it.reasons()))

    run(story())


def test_one_that_is_at_work_is_stopped(tmp_path: Path):
    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await with_shard(it)
            body = snapshot_body("first", deletionPolicy="Delete")
            await it.api.create("shardsnapshots", body)
            taking = await pods.job_of("first")
            await it.api.delete("shardsnapshots", "first")
            deleting = await pods.job_of("first", "delete")
            assert it.api.find("jobs", taking) is None
            pods.volume.mkdir()
            assert await pods.run(deleting) == 9  # nothing was taken yet
            await it.api.until(lambda: it.api.find("shardsnapshots", "first") is None)

    run(story())


def test_without_a_template_it_waits(tmp_path: Path):
    async def story() -> None:
        async with installed(tmp_path) as (it, pods):
            await it.api.delete("podtemplates", TEMPLATE)
            await with_shard(it)
            await it.api.create("shardsnapshots", snapshot_body("first"))
            told = await it.api.until(
                lambda: (
                    "PodTemplate" in pods.snapshot("first").get("message", "")
                    and pods.snapshot("first")
                )
            )
            assert (told["phase"], told["message"]) == ("Pending", "there is no PodTemplate pods")
            await it.api.until(lambda: "NoTemplate" in it.reasons())

    run(story())
