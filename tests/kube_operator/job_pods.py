"""What the Job controller and a kubelet would do for the Jobs of ShardSnapshots.

The command of a Job is run as it stands in it, as a process of its own; only paths are those of
this machine: the volume that is mounted at /snapshots, and the file of the termination message.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from kube_operator.installation import Installation
from shardlog_operator.snapshot_jobs import FINAL_EXITS, JOB_NAME_LABEL, MOUNT, REPORT

Json = Any
AT = "2026-11-17T06:00:00Z"
SHARDLOG = str(Path(sys.executable).with_name("shardlog"))


def template_body(name: str = "pods") -> Json:
    container = {"name": "snapshot", "image": "shardlog-node", "command": ["shardlog"]}
    return {"metadata": {"name": name}, "template": {"spec": {"containers": [container]}}}


def snapshot_body(name: str = "first", shard: str = "orders", **spec: object) -> Json:
    told: Json = {"shard": shard, "destination": {"url": "file:///snapshots", "claimName": "disk"}}
    return {"metadata": {"name": name}, "spec": told | spec}


class JobPods:
    """`volume` is what a claim stands for."""

    def __init__(self, it: Installation, volume: Path) -> None:
        self.it = it
        self.volume = volume

    def snapshot(self, name: str) -> Json:
        return (self.it.api.find("shardsnapshots", name) or {}).get("status") or {}

    async def job_of(self, name: str, work: str = "create") -> str:
        """The name of the Job that is at work for this ShardSnapshot."""

        def found() -> str | None:
            for job in self.it.api.all("jobs"):
                labels, spec = job["metadata"]["labels"], job["spec"]["template"]["spec"]
                is_ours = labels["shardlog.dev/snapshot"] == name
                if is_ours and spec["containers"][0]["args"][1] == work and not job.get("status"):
                    return str(job["metadata"]["name"])
            return None

        return str(await self.it.api.until(found))

    async def run(self, job: str, *, leave_pod: bool = True) -> int:
        """The status that the command ended with."""
        body = self.it.api.get("jobs", job)
        (container,) = body["spec"]["template"]["spec"]["containers"]
        report = self.volume.with_name(f"{job}.report")
        told = [
            each.replace(f"file://{MOUNT}", f"file://{self.volume}").replace(REPORT, str(report))
            for each in container["args"]
        ]
        environment = {**os.environ, "SHARDLOG_CLUSTER": f"http://{self.it.operator.address}"}
        process = await asyncio.create_subprocess_exec(
            SHARDLOG, *told, env=environment, stdout=asyncio.subprocess.DEVNULL
        )
        exit_code = await process.wait()
        if leave_pod:
            message = report.read_text() if report.exists() else ""
            ended = {"exitCode": exit_code, "message": message, "finishedAt": AT}
            await self.pod(job, containerStatuses=[_state(terminated=ended)])
        await self.end(job, exit_code)
        return exit_code

    async def pod(self, job: str, **status: Json) -> None:
        """As the Job controller makes it, and a kubelet tells of it."""
        owner = {"kind": "Job", "uid": self.it.api.get("jobs", job)["metadata"]["uid"]}
        name = f"{job}-pod"
        if self.it.api.find("pods", name) is not None:
            await self.it.api.delete("pods", name)
        meta = {"name": name, "labels": {JOB_NAME_LABEL: job}, "ownerReferences": [owner]}
        await self.it.api.create("pods", {"metadata": meta, "status": status})

    async def waits(self, job: str, reason: str, message: str) -> None:
        waiting = {"reason": reason, "message": message}
        await self.pod(job, containerStatuses=[_state(waiting=waiting)])
        await self.it.api.change("jobs", job, {"status": {"active": 1}}, "status")

    async def end(self, job: str, exit_code: int) -> None:
        kind = "Failed" if exit_code else "Complete"
        reason = "PodFailurePolicy" if exit_code in FINAL_EXITS else "BackoffLimitExceeded"
        condition = {
            "type": kind, "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": AT,
        }  # fmt: skip
        await self.it.api.change("jobs", job, {"status": {"conditions": [condition]}}, "status")


def _state(**state: Json) -> Json:
    return {"name": "snapshot", "state": state}
