"""What the operator can be told: one flat model is the only list of settings (`shardlog.process`).

Flags, names in the environment, the help text and the table in `docs/operator.md` follow from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_settings import SettingsConfigDict

from shardlog.process.settings import ProcessSettings, Program
from shardlog.transport.cluster_key import HOW_TO_MAKE_ONE

NODE_SELECTOR = "app.kubernetes.io/name=shardlog,app.kubernetes.io/component=node"

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class OperatorSettings(ProcessSettings):
    """Every setting of `shardlog-operator`."""

    model_config = SettingsConfigDict(
        env_prefix="SHARDLOG_OPERATOR_", env_ignore_empty=True, extra="forbid", frozen=True
    )

    namespace: str = Field(
        min_length=1, description="the namespace of its Shards and nodes; no other is looked at"
    )
    name: str = Field(
        default="operator", min_length=1, description="how nodes and events call this operator"
    )
    node_selector: str = Field(
        default=NODE_SELECTOR, description="labels of the pods that are nodes, as name=value,..."
    )
    node_addresses: str | None = Field(
        default=None,
        description="host name of a node with {node} for its name, where TLS needs one; "
        "none: the address of its pod",
    )
    node_grace_s: Seconds = Field(
        default=60.0, description="a node that is lost for longer is swapped"
    )

    snapshot_template: str | None = Field(
        default=None,
        description="the PodTemplate of pods that take ShardSnapshots; none: they wait",
    )

    metadata: str | None = Field(
        default=None,
        description="file of an SQLite store in place of etcd, for a single operator that is tried",
    )
    etcd_endpoints: str | None = Field(
        default=None, description="host:port of etcd's members, apart by commas"
    )
    etcd_prefix: str | None = Field(
        default=None, description="of every key; none: /shardlog/NAMESPACE/"
    )
    etcd_user: str | None = Field(
        default=None, min_length=1, description="who this is to etcd, if it asks for a password"
    )
    etcd_password_file: str | None = Field(
        default=None, description="file with the password of etcd_user"
    )
    etcd_tls_authority: str | None = Field(
        default=None, description="PEM file: whose certificates are believed of etcd"
    )
    etcd_tls_certificate: str | None = Field(
        default=None, description="PEM file: the certificate that is shown to etcd"
    )
    etcd_tls_key: str | None = Field(default=None, description="PEM file: its key")

    plain: bool = Field(default=False, description="no TLS to nodes, for a network that is trusted")
    tls_authority: str | None = Field(
        default=None, description="PEM file: whose certificates are believed of nodes"
    )
    tls_certificate: str | None = Field(
        default=None, description="PEM file: the certificate that is shown to nodes"
    )
    tls_key: str | None = Field(default=None, description="PEM file: its key")

    cluster_key_file: str | None = Field(
        default=None,
        description="file with the base64 of 32 random bytes, the same as that of the nodes; "
        "always needed",
    )

    http_host: str = Field(
        default="127.0.0.1", description="where the directory, health and metrics are served"
    )
    http_port: Port = Field(default=7410, description="its port; 0 for any that is free")

    resync_s: Seconds = Field(
        default=60.0,
        description="everything is listed anew so often, in case a watch has missed something",
    )
    positions_s: Seconds = Field(
        default=30.0, description="positions in a Shard's status are written at most so often"
    )
    workers: int = Field(
        default=8, ge=1, le=256, description="Shards that are reconciled at the same time"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="events below it are left out"
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="auto is console on a terminal, else json"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> OperatorSettings:
        if bool(self.metadata) == bool(self.etcd_endpoints):
            raise ValueError("etcd_endpoints or metadata is needed, and not both")
        files = (self.tls_authority, self.tls_certificate, self.tls_key)
        if self.plain and any(files):
            raise ValueError("plain: set together with tls_authority, tls_certificate or tls_key")
        if not self.plain and not all(files):
            raise ValueError(
                "tls_authority, tls_certificate and tls_key are needed; or plain, for no TLS"
            )
        if bool(self.etcd_tls_certificate) != bool(self.etcd_tls_key):
            raise ValueError("etcd_tls_certificate and etcd_tls_key go together")
        if bool(self.etcd_user) != bool(self.etcd_password_file):
            raise ValueError("etcd_user and etcd_password_file go together")
        if self.node_addresses is not None and "{node}" not in self.node_addresses:
            raise ValueError("node_addresses: {node} is not in it")
        labels_of(self.node_selector)
        if not self.cluster_key_file:
            raise ValueError(f"cluster_key_file is needed; make one with: {HOW_TO_MAKE_ONE}")
        return self

    @property
    def prefix(self) -> str:
        return self.etcd_prefix or f"/shardlog/{self.namespace}/"


def labels_of(selector: str) -> dict[str, str]:
    """The labels of a selector by equality, the only kind there is here."""
    found: dict[str, str] = {}
    for part in selector.split(","):
        name, equals, value = part.strip().partition("=")
        if not name or not equals:
            raise ValueError(f"node_selector: {part!r} is not name=value")
        found[name] = value
    return found


PROGRAM = Program(
    "shardlog-operator",
    OperatorSettings,
    usage="shardlog-operator --namespace NAMESPACE --etcd-endpoints HOST:PORT,... [flags]",
    description="The operator of Shardlog: brings about what Shards in one namespace ask for.",
    exits="0 stopped as asked, 2 bad settings, 3 crash, 8 Kubernetes or the metadata store "
    "cannot be used",
)


def load(arguments: Sequence[str]) -> OperatorSettings:
    """What flags, environment and file say together; raises `BadSettings`."""
    return PROGRAM.load(arguments)
