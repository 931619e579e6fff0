"""Settings by file, environment and flags; what is not one is refused in one line."""

from pathlib import Path

import pytest
from transport.documents import DOCS, table

from shardlog.process.settings import BadSettings, default_of, flag_of
from shardlog.transport.cluster_key import HOW_TO_MAKE_ONE
from shardlog_node.settings import PROGRAM, NodeSettings, load

LEAST = ["--name", "node-1", "--directory", "volume", "--cluster-key-file", "k", "--plain"]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    for name in NodeSettings.model_fields:
        monkeypatch.delenv(PROGRAM.variable_of(name), raising=False)


def test_the_least_that_must_be_said():
    settings = load(LEAST)
    assert (settings.name, settings.directory, settings.plain) == ("node-1", "volume", True)
    assert settings.data_host == settings.control_host == settings.http_host == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("node.toml", 'data_port = 1\ncontrol_port = 1\nhttp_port = 1\nlog_level = "debug"\n'),
        ("node.yaml", "data_port: 1\ncontrol_port: 1\nhttp_port: 1\nlog_level: debug\n"),
    ],
)
def test_flags_before_the_environment_before_the_file(tmp_path, monkeypatch, name, text):
    path = tmp_path / name
    path.write_text(text)
    monkeypatch.setenv("SHARDLOG_NODE_CONTROL_PORT", "2")
    monkeypatch.setenv("SHARDLOG_NODE_HTTP_PORT", "2")
    settings = load([*LEAST, "--config", str(path), "--http-port", "3"])
    assert (settings.data_port, settings.control_port, settings.http_port) == (1, 2, 3)
    assert settings.log_level == "debug"


def test_the_environment_names_the_file(tmp_path, monkeypatch):
    path = tmp_path / "node.toml"
    path.write_text('name = "node-7"\ndirectory = "here"\nplain = true\ncluster_key_file = "k"\n')
    monkeypatch.setenv("SHARDLOG_NODE_CONFIG", str(path))
    assert load([]).name == "node-7"


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("SHARDLOG_NODE_DATA_PORT", "")
    assert load(LEAST).data_port == 7400


def test_sizes_as_people_write_them():
    assert load([*LEAST, "--segment-bytes-max", "8MiB"]).segment_bytes_max == 8 << 20


def test_booleans(monkeypatch):
    files = ["--tls-authority", "a", "--tls-certificate", "b", "--tls-key", "c"]
    monkeypatch.setenv("SHARDLOG_NODE_TLS_MUTUAL", "false")
    least = [*LEAST[:-1], *files]
    assert load(least).tls_mutual is False
    assert load([*least, "--tls-mutual"]).tls_mutual is True


TLS = "--tls-authority", "a", "--tls-certificate", "b", "--tls-key", "c"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "name: needed (--name or SHARDLOG_NODE_NAME); directory: needed"),
        (["--nmae", "x"], "unrecognized arguments: --nmae x"),
        (["--name"], "argument --name: expected one argument"),
        ([*LEAST, "--data-port", "65536"], "data_port: Input should be less than"),
        ([*LEAST, "--data-port", "many"], "data_port: Input should be a valid integer"),
        ([*LEAST, "--segment-bytes-max", "8 MiX"], "segment_bytes_max: "),
        ([*LEAST, "--segment-bytes-max", "64KiB"], "segment_bytes_min: more than segment_bytes_"),
        ([*LEAST, "--log-level", "loud"], "log_level: Input should be 'debug'"),
        ([*LEAST, "--name", "x" * 256], "name: longer than 255 bytes"),
        ([*LEAST, *TLS], "plain: set together with tls_authority"),
        ([*LEAST[:-1], *TLS[:4]], "tls_key are needed; or plain, for no TLS"),
        ([*LEAST[:-1]], "tls_key are needed; or plain, for no TLS"),
        ([*LEAST[:4], "--plain"], f"cluster_key_file is needed; make one with: {HOW_TO_MAKE_ONE}"),
        ([*LEAST, "--config", "missing.toml"], "missing.toml: No such file or directory"),
    ],
)
def test_bad(arguments, told):
    with pytest.raises(BadSettings) as failure:
        load(arguments)
    assert told in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.toml", "data_prot = 1", "data_prot: no setting has this name"),
        ("a.toml", "data_port = ", "a.toml: Invalid value"),
        ("a.yaml", "data_port: [", "a.yaml: while parsing"),
        ("a.yaml", "- 1", "a.yaml: not a list of names and values"),
        ("a.yaml", "data_port: [1]", "data_port: Input should be a valid integer, not [1]"),
        ("a.yaml", "config: b.yaml", "a.yaml: config: a file cannot name another"),
        ("a.ini", "", "a.ini: .ini: not .toml, .yaml or .yml"),
        ("a.toml", b"\xff", "a.toml: 'utf-8' codec"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, text: str | bytes, told: str):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(BadSettings) as failure:
        load([*LEAST, "--config", str(path)])
    assert told in str(failure.value)
    assert "\n" not in str(failure.value)


def test_an_unknown_variable(monkeypatch):
    monkeypatch.setenv("SHARDLOG_NODE_DATA_PROT", "1")
    with pytest.raises(BadSettings, match="SHARDLOG_NODE_DATA_PROT: no setting has this name"):
        load(LEAST)


def test_variables_that_kubernetes_sets_for_a_service(monkeypatch):
    monkeypatch.setenv("SHARDLOG_NODE_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("SHARDLOG_NODE_PORT", "tcp://10.0.0.1:7400")
    monkeypatch.setenv("SHARDLOG_NODE_PORT_7400_TCP_ADDR", "10.0.0.1")
    load(LEAST)


def test_help_tells_of_every_setting(capsys):
    with pytest.raises(SystemExit) as ended:
        load(["--help"])
    assert ended.value.code == 0
    told = " ".join(capsys.readouterr().out.split())
    for name, field in NodeSettings.model_fields.items():
        assert flag_of(name) in told
        assert PROGRAM.variable_of(name) in told
        assert field.description
        assert field.description in told


def test_the_document_tells_of_every_setting():
    told = [
        (row["setting"].strip("`"), row["default"].strip("`"), row["meaning"])
        for row in table((DOCS / "node.md").read_text(), "Settings")
    ]
    assert told == [
        (name, default_of(field) or ("needed" if field.is_required() else "none"), meaning)
        for name, field in NodeSettings.model_fields.items()
        if (meaning := field.description)
    ]
