"""One operator process over etcd and an API server that is told: part of `operator_kube`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import tempfile

import kopf
import uvloop
from bench_key import key_file

from shardlog.process.logs import configure
from shardlog_operator.process import OperatorProcess, open_store
from shardlog_operator.settings import OperatorSettings


async def operate(namespace: str, server: str, etcd: str) -> None:
    settings = OperatorSettings(
        namespace=namespace, etcd_endpoints=etcd, plain=True, http_port=0, log_level="error",
        cluster_key_file=key_file(tempfile.mkdtemp(prefix="shardlog-bench-key-")),
    )  # fmt: skip
    process = OperatorProcess(
        settings, await open_store(settings), lambda: kopf.ConnectionInfo(server=server)
    )
    running = asyncio.create_task(process.run())
    while not process.address:
        await asyncio.sleep(0.05)
    print(json.dumps({"http": process.address}), flush=True)
    await running


if __name__ == "__main__":
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.disable(logging.CRITICAL)
    configure("error", "json")
    uvloop.run(operate(*sys.argv[1:]))
