"""What a node can be told: by a file, by the environment, by flags; the later of these wins.

One flat model is the only list of settings.  Flags, names in the environment, the help text and the
table in `docs/node.md` follow from it.  What is not in it is refused, wherever it stands: a setting
that was misspelt would otherwise be one that was silently not made.
"""

from __future__ import annotations

import os
import re
import tomllib
from argparse import ArgumentParser, BooleanOptionalAction, HelpFormatter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import yaml
from pydantic import ByteSize, Field, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from shardlog import __version__
from shardlog.transport.frames import FRAME_BYTES_MAX
from shardlog.transport.handshake import NAME_BYTES_MAX

PREFIX = "SHARDLOG_NODE_"

LINKED_SERVICE = re.compile(r"(SERVICE|PORT)(_|$)")
"""Kubernetes sets such names for a Service that is called `shardlog-node`; no setting is meant."""

FRAME_SPARE_BYTES = 1 << 10
"""For what stands around an entry in its frame."""

Port = Annotated[int, Field(ge=0, le=65535)]
Bytes = Annotated[ByteSize, Field(ge=64 << 10, le=1 << 40)]
Milliseconds = Annotated[int, Field(ge=0, le=3_600_000)]


class BadSettings(Exception):  # noqa: N818 - named after what it is
    """What was set cannot be used; the message is one line for a person."""


class NodeSettings(BaseSettings):
    """Every setting of `shardlog-node`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    config: str | None = Field(
        default=None, description="a file with settings, TOML (.toml) or YAML (.yaml, .yml)"
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
        default=None, description="its port, usually 7403; 0 for any that is free; none: not served"
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

    client_inflight_bytes_max: Bytes = Field(
        default=ByteSize(16 << 20),
        description="of one connection: appends not answered, what is not taken",
    )
    follower_inflight_bytes_max: Bytes = Field(
        default=ByteSize(4 << 20),
        description="of one shard to one follower: entries not acknowledged",
    )
    node_inflight_bytes_max: Bytes = Field(
        default=ByteSize(64 << 20),
        description="of all clients together: beyond it appends are refused; "
        "half of it for answers to reads, half for frames that are not whole",
    )
    entry_bytes_max: Bytes = Field(
        default=ByteSize(4 << 20), description="the longest batch of records"
    )
    connections_max: int = Field(
        default=10_000, ge=1, description="open on the data plane; one more is told so and closed"
    )

    open_files_max: int = Field(default=1024, ge=16, description="segments of the log kept open")
    sync_threads: int = Field(default=8, ge=1, le=256, description="threads that write and sync")
    segment_bytes_min: Bytes = Field(
        default=ByteSize(512 << 10),
        description="of a replica's first segment; each next is twice as large",
    )
    segment_bytes_max: Bytes = Field(
        default=ByteSize(64 << 20), description="until they are so large"
    )

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

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        path = init_settings().get("config") or env_settings().get("config")
        file = InitSettingsSource(settings_cls, _read(str(path)) if path else {})
        return init_settings, env_settings, file

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
        return self


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def variable_of(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def default_of(field: FieldInfo) -> str:
    """As a person would write it; empty if there is none."""
    value = None if field.is_required() else field.default
    if isinstance(value, ByteSize):
        return value.human_readable().replace(".0", "")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def load(arguments: Sequence[str]) -> NodeSettings:
    """What flags, environment and file say together; raises `BadSettings`."""
    flags = vars(_parser().parse_args(arguments))
    known = {variable_of(name) for name in NodeSettings.model_fields}
    for variable in os.environ:
        suffix = variable.removeprefix(PREFIX)
        if suffix != variable and variable not in known and not LINKED_SERVICE.match(suffix):
            raise BadSettings(f"{variable}: no setting has this name")
    try:
        return NodeSettings(**{name: value for name, value in flags.items() if value is not None})
    except ValidationError as failure:
        raise BadSettings("; ".join(_told(dict(error)) for error in failure.errors())) from None


def _told(error: dict[str, Any]) -> str:
    name = ".".join(map(str, error["loc"]))
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "missing":
        return f"{name}: needed ({flag_of(name)} or {variable_of(name)})"
    if error["type"] == "extra_forbidden":
        return f"{name}: no setting has this name"
    return f"{name}: {message}, not {error['input']!r}" if name else message


def _read(path: str) -> dict[str, Any]:
    """A file of settings; raises `BadSettings`."""
    try:
        text = Path(path).read_text()
        match Path(path).suffix:
            case ".toml":
                found = tomllib.loads(text)
            case ".yaml" | ".yml":
                found = yaml.safe_load(text) or {}
            case other:
                raise BadSettings(f"{path}: {other or 'no suffix'}: not .toml, .yaml or .yml")
    except OSError as failure:
        raise BadSettings(f"{path}: {failure.strerror}") from failure
    except (ValueError, yaml.YAMLError) as failure:
        raise BadSettings(f"{path}: {' '.join(str(failure).split())}") from failure
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise BadSettings(f"{path}: not a list of names and values")
    if "config" in found:
        raise BadSettings(f"{path}: config: a file cannot name another")
    return found


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadSettings(message)


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="shardlog-node",
        usage="shardlog-node --name NAME --directory DIRECTORY [flags]",
        description="A node of Shardlog: keeps replicas of shards and serves them.",
        epilog="Flags go before the environment, the environment before the file. "
        "Exit status: 0 stopped as asked, 2 bad settings, 3 crash, 7 damaged files, "
        "8 something it needs is in use or full.",
        formatter_class=lambda prog: HelpFormatter(prog, max_help_position=36, width=100),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"shardlog-node {__version__}")
    for name, field in NodeSettings.model_fields.items():
        default = default_of(field) or ("needed" if field.is_required() else "none")
        told = f"{field.description} [{variable_of(name)}; {default}]"
        if field.annotation is bool:
            parser.add_argument(
                flag_of(name), action=BooleanOptionalAction, default=None, help=told
            )
        else:
            parser.add_argument(flag_of(name), metavar="VALUE", help=told)
    return parser
