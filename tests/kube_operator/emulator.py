"""A Kubernetes API in memory: just what the operator leans on, with the same rules.

One counter of versions for all objects; a write that names another version than stands there is a
conflict; `status` and the rest are written apart; a change of the spec raises the generation;
finalizers hold a deletion; a watch goes on from a version, also over a restart of the API.  There
is no validation and nobody else: no garbage collector, no kubelet, no defaults.
"""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import kopf
from aiohttp import web

Json = Any

KINDS = {
    "/api/v1": {
        "pods": "Pod", "services": "Service", "events": "Event", "nodes": "Node",
        "namespaces": "Namespace", "podtemplates": "PodTemplate",
    },
    "/apis/shardlog.dev/v1alpha1": {
        "shards": "Shard", "shardoperations": "ShardOperation", "shardsnapshots": "ShardSnapshot",
    },
    "/apis/batch/v1": {"jobs": "Job"},
    "/apis/discovery.k8s.io/v1": {"endpointslices": "EndpointSlice"},
}  # fmt: skip
CLUSTER_WIDE = ("nodes", "namespaces")
WITH_STATUS = ("shards", "shardoperations", "shardsnapshots", "jobs", "pods")


class Refusal(Exception):  # noqa: N818 - named after what it is
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Api:
    """`objects` by plural and name.  `writes` are those that changed something, or tried to."""

    def __init__(self, namespace: str = "logs") -> None:
        self.namespace = namespace
        self.objects: dict[tuple[str, str], Json] = {}
        # Changes by plural, in the order of their versions.
        self.history: dict[str, list[tuple[int, str, Json]]] = defaultdict(list)
        self.version = 100
        self.port = 0
        self.writes: list[tuple[str, str]] = []
        self.forbidden: set[str] = set()
        # Kinds that nobody is told of, by lists or watches.
        self.late: set[str] = set()
        # Groups that nobody has installed.
        self.unknown: set[str] = set()
        self._changed = asyncio.Condition()
        self._runner: web.AppRunner | None = None

    # --- life ------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Api]:
        await self.start()
        try:
            yield self
        finally:
            await self.stop()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Nobody listens any more; what was stored stays."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def connect(self) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=f"http://127.0.0.1:{self.port}")

    # --- as a person -----------------------------------------------------------------------------

    def get(self, plural: str, name: str) -> Json:
        return copy.deepcopy(self.objects[plural, name])

    def find(self, plural: str, name: str) -> Json | None:
        return copy.deepcopy(self.objects.get((plural, name)))

    def all(self, plural: str) -> list[Json]:
        return [copy.deepcopy(body) for (kind, _), body in self.objects.items() if kind == plural]

    async def create(self, plural: str, body: Json) -> Json:
        group = next(group for group, kinds in KINDS.items() if plural in kinds)
        body.setdefault("apiVersion", group.removeprefix("/apis/").removeprefix("/api/"))
        body.setdefault("kind", KINDS[group][plural])
        return await self._create(plural, body)

    async def change(self, plural: str, name: str, patch: Json, subresource: str = "") -> Json:
        return await self._update(plural, name, subresource, lambda old: merged(old, patch))

    async def delete(self, plural: str, name: str) -> None:
        await self._delete(plural, name, {})

    async def until(self, wanted: Any, timeout_s: float = 120.0) -> Any:
        """What `wanted` returns once that is not false; looked at after each write."""
        async with asyncio.timeout(timeout_s):
            while True:
                found = wanted()
                if found:
                    return found
                async with self._changed:
                    try:
                        async with asyncio.timeout(0.2):
                            await self._changed.wait()
                    except TimeoutError:
                        continue

    # --- objects ---------------------------------------------------------------------------------

    async def _create(self, plural: str, body: Json) -> Json:
        name = body["metadata"]["name"]
        if (plural, name) in self.objects:
            raise Refusal(409, "AlreadyExists")
        body = copy.deepcopy(body)
        if plural not in CLUSTER_WIDE:
            body["metadata"].setdefault("namespace", self.namespace)
        body["metadata"] |= {
            "uid": str(uuid.uuid4()),
            "generation": 1,
            "creationTimestamp": _now(),
        }
        if plural in WITH_STATUS and plural != "pods":
            body.pop("status", None)
        return await self._store("ADDED", plural, name, body)

    async def _update(self, plural: str, name: str, subresource: str, change: Any) -> Json:
        old = self.objects.get((plural, name))
        if old is None:
            raise Refusal(404, "NotFound")
        new = change(copy.deepcopy(old))
        asked = new["metadata"].get("resourceVersion")
        if asked is not None and asked != old["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict")
        if subresource == "status":
            new = copy.deepcopy(old) | {"status": new.get("status")}
        elif plural in WITH_STATUS and plural != "pods":
            new["status"] = old.get("status")
            if new["status"] is None:
                del new["status"]
        for field in ("uid", "creationTimestamp", "deletionTimestamp", "generation"):
            if field in old["metadata"]:
                new["metadata"][field] = old["metadata"][field]
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] += 1
        if _same(new, old):
            return old
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            return await self._store("DELETED", plural, name, new)
        return await self._store("MODIFIED", plural, name, new)

    async def _delete(self, plural: str, name: str, options: Json) -> Json:
        old = self.objects.get((plural, name))
        if old is None:
            raise Refusal(404, "NotFound")
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != old["metadata"]["uid"]:
            raise Refusal(409, "Conflict")
        body = copy.deepcopy(old)
        if body["metadata"].get("finalizers"):
            body["metadata"].setdefault("deletionTimestamp", _now())
            return await self._store("MODIFIED", plural, name, body)
        return await self._store("DELETED", plural, name, body)

    async def _store(self, kind: str, plural: str, name: str, body: Json) -> Json:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        if kind == "DELETED":
            self.objects.pop((plural, name), None)
        else:
            self.objects[plural, name] = body
        self.history[plural].append((self.version, kind, copy.deepcopy(body)))
        async with self._changed:
            self._changed.notify_all()
        return body

    # --- HTTP ------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path.rstrip("/")
        known = path not in self.unknown
        if request.method == "GET" and known and (told := _discovery(path)) is not None:
            return web.json_response(told)
        try:
            return await self._served(request, path)
        except Refusal as refusal:
            told = {"kind": "Status", "reason": str(refusal), "message": str(refusal)}
            return web.json_response(told | {"code": refusal.code}, status=refusal.code)

    async def _served(self, request: web.Request, path: str) -> web.StreamResponse:
        group = next((each for each in KINDS if path.startswith(f"{each}/")), None)
        if group is None:
            raise Refusal(404, "NotFound")
        parts = path.removeprefix(f"{group}/").split("/")
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        plural, name, subresource = (*parts, "", "")[:3]
        if plural in self.forbidden:
            raise Refusal(403, "Forbidden")
        if request.method == "GET" and not name:
            await self.until(lambda: plural not in self.late)
            if request.query.get("watch") == "true":
                return await self._watch(request, plural)
            items = [each for each in self.all(plural) if _selected(each, request)]
            return web.json_response(
                {"metadata": {"resourceVersion": str(self.version)}, "items": items}
            )
        if request.method == "GET":
            if (plural, name) not in self.objects:
                raise Refusal(404, "NotFound")
            return web.json_response(self.objects[plural, name])
        self.writes.append((request.method, f"{plural}/{name}/{subresource}".rstrip("/")))
        body = await request.json() if request.can_read_body else {}
        return web.json_response(await self._write(request, plural, name, subresource, body))

    async def _write(
        self, request: web.Request, plural: str, name: str, subresource: str, body: Json
    ) -> Json:
        match request.method:
            case "POST":
                return await self._create(plural, body)
            case "PUT":
                return await self._update(plural, name, subresource, lambda _: body)
            case "PATCH":
                strategic = "strategic" in request.headers["Content-Type"]
                change = strategically_merged if strategic else merged
                return await self._update(plural, name, subresource, lambda old: change(old, body))
            case "DELETE":
                return await self._delete(plural, name, body)
        raise Refusal(405, "MethodNotAllowed")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        since = int(request.query.get("resourceVersion", "0"))
        while True:
            for version, kind, body in self._since(plural, since):
                since = version
                if _selected(body, request):
                    await answer.write(json.dumps({"type": kind, "object": body}).encode() + b"\n")
            async with self._changed:
                if not self._since(plural, since):
                    await self._changed.wait()

    def _since(self, plural: str, version: int) -> list[tuple[int, str, Json]]:
        changes = self.history[plural]
        return changes[bisect_right(changes, version, key=lambda each: each[0]) :]


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _same(one: Json, other: Json) -> bool:
    def bare(body: Json) -> Json:
        meta = {name: v for name, v in body["metadata"].items() if name != "resourceVersion"}
        return body | {"metadata": meta}

    return bool(bare(one) == bare(other))


def _selected(body: Json, request: web.Request) -> bool:
    labels = body["metadata"].get("labels") or {}
    selector = request.query.get("labelSelector", "")
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    return all(labels.get(name) == value for name, value in wanted.items())


def merged(old: Json, patch: Json) -> Json:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def strategically_merged(old: Json, patch: Json) -> Json:
    """Of conditions, by their type."""
    conditions = {each["type"]: each for each in old.get("status", {}).get("conditions", [])}
    for each in patch["status"]["conditions"]:
        conditions[each["type"]] = conditions.get(each["type"], {}) | each
    return merged(old, {"status": {"conditions": list(conditions.values())}})


def _discovery(path: str) -> Json | None:
    if path == "/api":
        return {"versions": ["v1"]}
    if path == "/apis":
        named = [each.removeprefix("/apis/").split("/") for each in KINDS if "/apis/" in each]
        return {
            "groups": [
                {
                    "name": group,
                    "versions": [{"version": version, "groupVersion": f"{group}/{version}"}],
                    "preferredVersion": {"version": version},
                }
                for group, version in named
            ]
        }
    if path not in KINDS:
        return None
    verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
    found = []
    for plural, kind in KINDS[path].items():
        names = [plural, f"{plural}/status"] if plural in WITH_STATUS else [plural]
        found += [
            {
                "name": name,
                "kind": kind,
                "singularName": kind.lower(),
                "namespaced": plural not in CLUSTER_WIDE,
                "verbs": verbs,
            }
            for name in names
        ]
    return {"kind": "APIResourceList", "resources": found}
