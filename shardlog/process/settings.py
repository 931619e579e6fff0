"""Settings of a process: by a file, by the environment, by flags; the later of these wins.

One flat model is the only list of a program's settings.  Flags, names in the environment, the help
text and the table in its document follow from it.  What is not in it is refused, wherever it
stands: a setting that was misspelt would otherwise be one that was silently not made.
"""

from __future__ import annotations

import os
import re
import tomllib
from argparse import ArgumentParser, BooleanOptionalAction, HelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import yaml
from pydantic import ByteSize, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource

from shardlog import __version__
from shardlog.transport.cluster_key import BadClusterKey, ClusterKey

LINKED_SERVICE = re.compile(r"(SERVICE|PORT)(_|$)")
"""Kubernetes sets such names for a Service that is called like the program; none is meant."""


class BadSettings(Exception):  # noqa: N818 - named after what it is
    """What was set cannot be used; the message is one line for a person."""


class ProcessSettings(BaseSettings):
    """Base of every program's settings."""

    config: str | None = Field(
        default=None, description="a file with settings, TOML (.toml) or YAML (.yaml, .yml)"
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


def load_cluster_key(path: str | None) -> ClusterKey:
    """Of the setting `cluster_key_file`; raises `BadSettings`."""
    try:
        return ClusterKey.read(path or "")
    except BadClusterKey as failure:
        raise BadSettings(f"cluster_key_file: {failure}") from failure


S = TypeVar("S", bound=ProcessSettings)


@dataclass(frozen=True, slots=True)
class Program(Generic[S]):
    """A program and its settings.  `load` is what flags, environment and file say together."""

    name: str
    model: type[S]
    usage: str
    description: str
    exits: str

    @property
    def prefix(self) -> str:
        return f"{self.name.replace('-', '_').upper()}_"

    def variable_of(self, setting: str) -> str:
        return f"{self.prefix}{setting.upper()}"

    def load(self, arguments: Sequence[str]) -> S:
        """Raises `BadSettings`."""
        flags = vars(self._parser().parse_args(arguments))
        known = {self.variable_of(name) for name in self.model.model_fields}
        for variable in os.environ:
            suffix = variable.removeprefix(self.prefix)
            if suffix != variable and variable not in known and not LINKED_SERVICE.match(suffix):
                raise BadSettings(f"{variable}: no setting has this name")
        try:
            return self.model(**{name: value for name, value in flags.items() if value is not None})
        except ValidationError as failure:
            told = "; ".join(self._told(dict(error)) for error in failure.errors())
            raise BadSettings(told) from None

    def _told(self, error: dict[str, Any]) -> str:
        name = ".".join(map(str, error["loc"]))
        message = str(error["msg"]).removeprefix("Value error, ")
        if error["type"] == "missing":
            return f"{name}: needed ({flag_of(name)} or {self.variable_of(name)})"
        if error["type"] == "extra_forbidden":
            return f"{name}: no setting has this name"
        return f"{name}: {message}, not {error['input']!r}" if name else message

    def _parser(self) -> ArgumentParser:
        parser = _Parser(
            prog=self.name,
            usage=self.usage,
            description=self.description,
            epilog="Flags go before the environment, the environment before the file. "
            f"Exit status: {self.exits}.",
            formatter_class=lambda prog: HelpFormatter(prog, max_help_position=36, width=100),
            allow_abbrev=False,
        )
        parser.add_argument("--version", action="version", version=f"{self.name} {__version__}")
        for name, field in self.model.model_fields.items():
            default = default_of(field) or ("needed" if field.is_required() else "none")
            told = f"{field.description} [{self.variable_of(name)}; {default}]"
            if field.annotation is bool:
                parser.add_argument(
                    flag_of(name), action=BooleanOptionalAction, default=None, help=told
                )
            else:
                parser.add_argument(flag_of(name), metavar="VALUE", help=told)
        return parser


def flag_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def default_of(field: FieldInfo) -> str:
    """As a person would write it; empty if there is none."""
    value = None if field.is_required() else field.default
    if isinstance(value, ByteSize):
        return value.human_readable().replace(".0", "")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadSettings(message)


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
