"""What a node can be told: one flat model is the only list of settings (`shardlog.process`).

Flags, names in the environment, the help text and the table in `docs/node.md` follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ByteSize, Field, model_validator
from pydantic_settings import SettingsConfigDict

from shardlog.process.settings import ProcessSettings, Program
from shardlog.transport.cluster_key import HOW_TO_MAKE_ONE
from shardlog.transport.frames import FRAME_BYTES_MAX
from shardlog.transport.handshake import NAME_BYTES_MAX

FRAME_SPARE_BYTES = 1 << 10
"""For what stands around an entry in its frame."""

Port = Annotated[int, Field(ge=0, le=65535)]
Bytes = Annotated[ByteSize, Field(ge=64 << 10, le=1 << 40)]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]


class NodeSettings(ProcessSettings):
    """Every setting of `shardlog-node`."""

    model_config = SettingsConfigDict(
        env_prefix="SHARDLOG_NODE_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    name: str = Field(min_length=1, description="how the others call this node; never changes")
    directory: str = Field(min_length=1, description="where the replicas are; made if need be")

    data_host: str = Field(default="127.0.0.1", description="where the data plane listens")
    data_port: Port = Field(default=7400, description="its port; 0 for any that is free")
    control_host: str = Field(
        default="127.0.0.1", description="where the control plane (gRPC) listens"
    )
    control_port: Port = Field(default=7401, description="its port; 0 for any that is free")
    http_host: str = Field(default="127.0.0.1", description="where health and metrics are served")
    http_port: Port = Field(default=7402, description="its port; 0 for any that is free")
    public_host: str = Field(
        default="127.0.0.1", description="where the service for other languages (gRPC) listens"
    )
    public_port: Port | None = Field(
        default=None,
        description="its port, usually 7403; 0 for any that is free, another one at each start; "
        "none: not served",
    )
    public_addresses: str | None = Field(
        default=None,
        description="host:port of this service on any node, with {node} for its name, for clients",
    )

    plain: bool = Field(
        default=False,
        description="no TLS on either plane, for a machine or a network that is trusted",
    )
    tls_authority: str | None = Field(
        default=None, description="PEM file: whose certificates are believed, on both planes"
    )
    tls_certificate: str | None = Field(
        default=None,
        description="PEM file: this node's certificate and those between it and the authority",
    )
    tls_key: str | None = Field(default=None, description="PEM file: the key of the certificate")
    tls_mutual: bool = Field(
        default=True, description="whether those who connect must show a certificate too"
    )

    cluster_key_file: str | None = Field(
        default=None,
        description="file with the base64 of 32 random bytes, the same for all nodes and "
        "coordinators of a cluster; always needed",
    )

    client_inflight_bytes_max: Bytes = Field(
        default=ByteSize(16 << 20),
        description="of one connection: appends not answered, what is not taken",
    )
    follower_inflight_bytes_max: Bytes = Field(
        default=ByteSize(8 << 20),
        description="of one shard to one follower: entries not acknowledged",
    )
    node_inflight_bytes_max: Bytes = Field(
        default=ByteSize(64 << 20),
        description="of all clients together, 1 KiB for an append or a session besides its bytes: "
        "beyond it they are refused; half of it for answers to reads, "
        "half for frames that are not whole",
    )
    entry_bytes_max: Bytes = Field(
        default=ByteSize(4 << 20), description="the longest batch of records"
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="open on the data plane; one more is told so and closed"
    )

    open_files_max: int = Field(default=1024, ge=16, description="segments of the log kept open")
    recent_bytes_max: Annotated[ByteSize, Field(ge=0, le=1 << 40)] = Field(
        default=ByteSize(512 << 20),
        description="of full segments, the newest stay in the page cache; "
        "when one becomes older it is let go of",
    )
    sync_threads: int = Field(default=8, ge=1, le=256, description="threads that write and sync")
    sync_on_loop_us_max: int = Field(
        default=1000,
        ge=0,
        le=100_000,
        description="a disk that takes less for most small syncs is not left to threads; 0: it is",
    )
    segment_bytes_min: Bytes = Field(
        default=ByteSize(512 << 10),
        description="of a replica's first segment; each next is twice as large",
    )
    segment_bytes_max: Bytes = Field(
        default=ByteSize(64 << 20), description="until they are so large"
    )

    catch_up_bytes_per_s_max: Annotated[ByteSize, Field(ge=0, le=1 << 40)] = Field(
        default=ByteSize(0),
        description="old entries for those who lack them, of all shards; 0 for no bound",
    )
    catch_up_percent: int = Field(
        default=150, ge=0, le=10_000,
        description="while clients append: for each shard so much of what they append to it",
    )  # fmt: skip

    scrub_core_percent: float = Field(
        default=2.0, ge=0, le=100,
        description="of one core, to read all that is stored again and again; 0 for never",
    )  # fmt: skip
    scrub_bytes_per_s: Bytes = Field(
        default=ByteSize(8 << 20), description="and no faster than this"
    )

    call_timeout_ms: Milliseconds = Field(
        default=10_000, description="a call of the control plane that is not answered then never is"
    )
    stop_timeout_ms: Milliseconds = Field(
        default=10_000, description="how long a stop waits until leadership has been handed over"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="events below it are left out"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto is console on a terminal, else json"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> NodeSettings:
        if len(self.name.encode()) > NAME_BYTES_MAX:
            raise ValueError(f"name: longer than {NAME_BYTES_MAX} bytes")
        if self.entry_bytes_max > FRAME_BYTES_MAX - FRAME_SPARE_BYTES:
            raise ValueError(f"entry_bytes_max: does not fit into a frame of {FRAME_BYTES_MAX}")
        if self.segment_bytes_min > self.segment_bytes_max:
            raise ValueError("segment_bytes_min: more than segment_bytes_max")
        if self.public_addresses is not None and "{node}" not in self.public_addresses:
            raise ValueError("public_addresses: {node} is not in it")
        files = (self.tls_authority, self.tls_certificate, self.tls_key)
        if self.plain and any(files):
            raise ValueError("plain: set together with tls_authority, tls_certificate or tls_key")
        if not self.plain and not all(files):
            raise ValueError(
                "tls_authority, tls_certificate and tls_key are needed; or plain, for no TLS"
            )
        if not self.cluster_key_file:
            raise ValueError(f"cluster_key_file is needed; make one with: {HOW_TO_MAKE_ONE}")
        return self


PROGRAM = Program(
    "shardlog-node",
    NodeSettings,
    usage="shardlog-node --name NAME --directory DIRECTORY [flags]",
    description="A node of Shardlog: keeps replicas of shards and serves them.",
    exits="0 stopped as asked, 2 bad settings, 3 crash, 7 damaged files, "
    "8 something it needs is in use or full",
)


def load(arguments: Sequence[str]) -> NodeSettings:
    """What flags, environment and file say together; raises `BadSettings`."""
    return PROGRAM.load(arguments)
