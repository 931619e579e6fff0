"""TLS on both planes of real nodes, from the same files."""

import asyncio
import ssl
from functools import cache
from pathlib import Path

import pytest
import trustme
from cluster_keys import KEY

from node.shell import Cluster, append
from shardlog.process.settings import BadSettings
from shardlog.protocol.messages import Envelope, StatusRequest
from shardlog.transport.control import ControlClient, ControlLimits, ControlTls
from shardlog.transport.failures import TransportFailure
from shardlog_node.settings import NodeSettings
from shardlog_node.tls import load_tls


class Authority:
    """With files for nodes, and what those who connect to them need."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.node = self.authority.issue_cert("127.0.0.1", "localhost")
        self.caller = self.authority.issue_cert("operator")

    def files(self, directory: Path) -> dict[str, str]:
        paths = {
            part: str(directory / f"{part}.pem") for part in ("authority", "certificate", "key")
        }
        self.authority.cert_pem.write_to_path(paths["authority"])
        for at, blob in enumerate(self.node.cert_chain_pems):
            blob.write_to_path(paths["certificate"], append=at > 0)
        self.node.private_key_pem.write_to_path(paths["key"])
        return {f"tls_{part}": path for part, path in paths.items()}

    def context(self, *, known: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        if known:
            self.caller.configure_cert(context)
        return context

    def control(self, *, known: bool = True) -> ControlTls:
        authority = self.authority.cert_pem.bytes()
        if not known:
            return ControlTls(authority)
        chain = b"".join(blob.bytes() for blob in self.caller.cert_chain_pems)
        return ControlTls(authority, chain, self.caller.private_key_pem.bytes())


@cache
def authority() -> Authority:
    return Authority()


def flags(files: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"--{name.replace('_', '-')}={path}" for name, path in files.items())


async def answered(cluster: Cluster, name: str, tls: ControlTls | None) -> bool:
    """Whether a call over the control plane is."""
    client = ControlClient(ControlLimits(), tls, KEY)
    try:
        address = cluster.nodes[name].ready["control"]
        answer = await client.call(
            address, Envelope("orders", "me", 0, name, 0, StatusRequest(0)), 5000
        )
        return answer is not None
    finally:
        await client.close()


def test_a_cluster_with_mutual_tls(tmp_path):
    async def story():
        cluster = Cluster(tmp_path, "a", "b", "c", arguments=flags(authority().files(tmp_path)))
        cluster.tls = authority().control()
        async with cluster.running():
            leader = await cluster.create("orders")
            async with cluster.client(leader, "orders", authority().context()) as client:
                await append(client, 5)
            assert await answered(cluster, leader, authority().control())
            for unknown in (None, authority().context(known=False), Authority().context()):
                with pytest.raises(TransportFailure):
                    async with cluster.client(leader, "orders", unknown):
                        pass
            for stranger in (None, authority().control(known=False), Authority().control()):
                with pytest.raises(TransportFailure):
                    await answered(cluster, leader, stranger)
            assert await answered(cluster, leader, authority().control())

    asyncio.run(story())


def test_a_node_that_asks_for_no_certificates(tmp_path):
    async def story():
        arguments = (*flags(authority().files(tmp_path)), "--no-tls-mutual")
        cluster = Cluster(tmp_path, "a", arguments=arguments)
        cluster.tls = authority().control(known=False)
        async with cluster.running():
            leader = await cluster.create("orders")
            context = authority().context(known=False)
            async with cluster.client(leader, "orders", context) as client:
                await append(client, 5)
            with pytest.raises(TransportFailure):
                async with cluster.client(leader, "orders"):
                    pass

    asyncio.run(story())


# --- files ---------------------------------------------------------------------------------------


def settings(directory: Path, **changed: str | bool) -> NodeSettings:
    least = {
        "name": "a",
        "directory": str(directory),
        "cluster_key_file": "k",
        **authority().files(directory),
    }
    return NodeSettings.model_validate({**least, **changed})


def test_files_that_fit(tmp_path):
    found = load_tls(settings(tmp_path))
    assert found is not None
    assert found.accepting.verify_mode is ssl.CERT_REQUIRED
    assert found.calling.verify_mode is ssl.CERT_REQUIRED
    assert found.calling.check_hostname
    assert len(found.accepting.get_ca_certs()) == 1
    assert found.control.mutual


def test_one_sided(tmp_path):
    found = load_tls(settings(tmp_path, tls_mutual=False))
    assert found is not None
    assert found.accepting.verify_mode is ssl.CERT_NONE
    assert not found.control.mutual


def test_plain(tmp_path):
    assert (
        load_tls(NodeSettings(name="a", directory=str(tmp_path), plain=True, cluster_key_file="k"))
        is None
    )


@pytest.mark.parametrize("part", ["tls_authority", "tls_certificate", "tls_key"])
@pytest.mark.parametrize("content", [None, b"", b"garbage\n", b"\xff\xfe"])
def test_files_that_do_not(tmp_path, part, content):
    path = tmp_path / "bad"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadSettings) as failure:
        load_tls(settings(tmp_path, **{part: str(path)}))
    assert str(path) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_key_of_another_certificate(tmp_path):
    other = tmp_path / "other.pem"
    Authority().node.private_key_pem.write_to_path(str(other))
    with pytest.raises(BadSettings, match="key values mismatch"):
        load_tls(settings(tmp_path, tls_key=str(other)))
