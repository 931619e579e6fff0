"""Settings of the operator; the document tells of every one."""

import asyncio
from pathlib import Path

import pytest
from transport.documents import DOCS, table

from shardlog.metadata.etcd.store import EtcdStore
from shardlog.process.ends import Exit
from shardlog.process.settings import BadSettings, default_of, flag_of
from shardlog_operator.main import run
from shardlog_operator.process import open_store
from shardlog_operator.settings import PROGRAM, OperatorSettings, labels_of, load

LEAST = [
    "--cluster-key-file", "k", "--namespace", "logs", "--plain", "--etcd-endpoints", "etcd:2379",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in OperatorSettings.model_fields:
        monkeypatch.delenv(PROGRAM.variable_of(name), raising=False)


def test_the_least_that_must_be_said():
    settings = load(LEAST)
    assert settings.prefix == "/shardlog/logs/"
    assert settings.node_grace_s == 60
    assert settings.http_port == 7410


def test_by_the_environment(monkeypatch):
    monkeypatch.setenv("SHARDLOG_OPERATOR_NAMESPACE", "other")
    monkeypatch.setenv("SHARDLOG_OPERATOR_ETCD_PREFIX", "/a/")
    monkeypatch.setenv("SHARDLOG_OPERATOR_SERVICE_HOST", "10.0.0.1")
    assert load([*LEAST[:2], *LEAST[4:]]).namespace == "other"
    assert load([*LEAST[:2], *LEAST[4:]]).prefix == "/a/"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (LEAST[:5], "etcd_endpoints or metadata is needed"),
        ([*LEAST, "--metadata", "x"], "and not both"),
        (["--namespace", "n", "--etcd-endpoints", "e"], "or plain, for no TLS"),
        ([*LEAST, "--tls-key", "k"], "plain: set together"),
        ([*LEAST, "--node-selector", "app"], "'app' is not name=value"),
        ([*LEAST, "--node-addresses", "host"], "{node} is not in it"),
        ([*LEAST, "--etcd-tls-key", "k"], "go together"),
        ([*LEAST, "--etcd-user", "u"], "etcd_user and etcd_password_file go together"),
        ([*LEAST, "--etcd-password-file", "f"], "etcd_user and etcd_password_file go together"),
        ([*LEAST, "--node-grace-s", "0"], "node_grace_s"),
        ([*LEAST, "--no-such", "0"], "--no-such"),
        (["--plain", "--etcd-endpoints", "e"], "namespace: needed"),
        (LEAST[2:], "cluster_key_file is needed; make one with: head -c 32 /dev/urandom"),
    ],
)
def test_refused(arguments: list[str], told: str):
    with pytest.raises(BadSettings) as caught:
        load(arguments)
    assert told in str(caught.value)


def test_a_user_of_etcd(tmp_path: Path):
    file = tmp_path / "password"
    account = [*LEAST, "--etcd-user", "shardlog", "--etcd-password-file", str(file)]
    with pytest.raises(BadSettings, match="etcd_password_file"):
        asyncio.run(open_store(load(account)))
    file.write_text("secret\n")

    async def opened() -> None:
        store = await open_store(load(account))
        assert isinstance(store, EtcdStore)
        assert (store.links.settings.user, store.links.settings.password) == ("shardlog", "secret")
        await store.close()

    asyncio.run(opened())


def test_bad_settings_are_one_line(capsys):
    assert run(["--namespace"]) is Exit.USAGE
    assert capsys.readouterr().err.startswith("shardlog-operator: ")


def test_labels():
    assert labels_of("a/b=c, d=") == {"a/b": "c", "d": ""}


def test_help_tells_of_every_setting(capsys):
    with pytest.raises(SystemExit):
        load(["--help"])
    told = " ".join(capsys.readouterr().out.split())
    for name in OperatorSettings.model_fields:
        assert flag_of(name) in told
        assert PROGRAM.variable_of(name) in told


def test_the_document_tells_of_every_setting():
    told = [
        (row["setting"].strip("`"), row["default"].strip("`"), row["meaning"])
        for row in table((DOCS / "operator.md").read_text(), "Settings")
    ]
    assert told == [
        (name, default_of(field) or ("needed" if field.is_required() else "none"), meaning)
        for name, field in OperatorSettings.model_fields.items()
        if (meaning := field.description)
    ]
