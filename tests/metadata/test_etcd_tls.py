"""TLS, mutual TLS and passwords of etcd: who gets in, and what everybody else is told."""

import asyncio
import datetime
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trustme
from etcd.cluster import EtcdCertificates, EtcdCluster

from metadata.backends import put, take
from shardlog.metadata.etcd.settings import EtcdSettings, EtcdTls
from shardlog.metadata.etcd.store import EtcdStore
from shardlog.metadata.failures import (
    CannotOpen,
    MetadataFailure,
    NotPermitted,
    Unavailable,
    Unusable,
)
from shardlog.metadata.store import Change

pytestmark = pytest.mark.needs("etcd")


class Authority:
    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.ca_file = str(directory / f"{name}.pem")
        self._ca.cert_pem.write_to_path(self.ca_file)

    def issue(self, name: str, expires: datetime.datetime | None = None) -> tuple[str, str]:
        """The files of a certificate and its key."""
        cert = self._ca.issue_cert(name, common_name=name, not_after=expires)
        cert_file, key_file = (str(self._directory / f"{name}.{kind}") for kind in ("pem", "key"))
        cert.cert_chain_pems[0].write_to_path(cert_file)
        cert.private_key_pem.write_to_path(key_file)
        return cert_file, key_file


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def authority(directory: Path) -> Authority:
    return Authority(directory, "ours")


@pytest.fixture(scope="module")
def encrypted(directory: Path, authority: Authority) -> Iterator[EtcdCluster]:
    """TLS; clients need no certificate."""
    given = EtcdCertificates(*authority.issue("127.0.0.1"), authority.ca_file)
    with EtcdCluster(directory / "encrypted", certificates=given) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mutual(directory: Path, authority: Authority) -> Iterator[EtcdCluster]:
    """TLS for `etcd.internal` alone; clients need a certificate."""
    given = EtcdCertificates(
        *authority.issue("etcd.internal"), authority.ca_file, client=authority.issue("tests")
    )
    with EtcdCluster(directory / "mutual", certificates=given, name="etcd.internal") as cluster:
        yield cluster


@asynccontextmanager
async def opened(settings: EtcdSettings) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(settings)
    try:
        yield store
    finally:
        await store.close()


async def refusal(settings: EtcdSettings) -> MetadataFailure:
    """In one line that names the place."""
    with pytest.raises(MetadataFailure) as caught:
        await EtcdStore.open(settings)
    assert settings.endpoints[0] in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


async def works(settings: EtcdSettings) -> None:
    async with opened(settings) as store:
        record = await put(store, "a", b"1")
        async with store.watch("", record.version) as watch:
            assert await take(watch, 1) == [Change(record.version, "a", b"1")]
        assert str(await store.health()) == "1 of 1 members answer"


# --- certificates of etcd ----------------------------------------------------------------------


async def test_tls(encrypted: EtcdCluster, authority: Authority):
    await works(encrypted.settings())
    url = f"etcds://{encrypted.endpoints[0]}/test/?ca={authority.ca_file}"
    async with opened(EtcdSettings.from_url(url)) as store:
        assert await store.get("a")


async def test_an_authority_that_is_not_etcds(encrypted: EtcdCluster, directory: Path):
    tls = EtcdTls(ca_file=Authority(directory, "theirs").ca_file)
    failure = await refusal(encrypted.settings(tls=tls))
    assert isinstance(failure, CannotOpen)
    assert "CERTIFICATE_VERIFY_FAILED" in str(failure)


async def test_the_systems_authorities_do_not_know_a_private_one(encrypted: EtcdCluster):
    assert isinstance(await refusal(encrypted.settings(tls=EtcdTls())), CannotOpen)


async def test_a_certificate_for_another_name(encrypted: EtcdCluster, authority: Authority):
    tls = EtcdTls(authority.ca_file, name="etcd.example")
    failure = await refusal(encrypted.settings(tls=tls))
    assert isinstance(failure, CannotOpen)
    assert "Hostname Verification" in str(failure)


async def test_no_tls_where_tls_is_spoken(encrypted: EtcdCluster):
    settings = replace(encrypted.settings(), tls=None, connect_timeout_ms=500)
    assert isinstance(await refusal(settings), Unavailable)


async def test_tls_where_none_is_spoken(etcd: EtcdCluster, authority: Authority):
    tls = EtcdTls(authority.ca_file)
    failure = await refusal(replace(etcd.settings(tls=tls), connect_timeout_ms=500))
    assert isinstance(failure, Unavailable)


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
async def test_a_file_that_is_missing_or_no_certificate(
    encrypted: EtcdCluster, tmp_path: Path, content: bytes | None
):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    failure = await refusal(encrypted.settings(tls=EtcdTls(ca_file=str(path))))
    assert isinstance(failure, CannotOpen)
    if content is None:
        assert failure.why == f"{path}: No such file or directory"


# --- certificates of clients -------------------------------------------------------------------


def with_client(
    cluster: EtcdCluster, authority: Authority, files: tuple[str, str] | None
) -> EtcdSettings:
    cert_file, key_file = files or (None, None)
    tls = EtcdTls(authority.ca_file, cert_file, key_file, name="etcd.internal")
    return replace(cluster.settings(tls=tls), connect_timeout_ms=1000)


def require_refused(failure: MetadataFailure) -> None:
    """TLS 1.3 refuses a client after the handshake; sometimes the connection is gone before."""
    if not isinstance(failure, Unavailable):
        assert isinstance(failure, CannotOpen)
        assert "wants another client certificate, or any" in failure.why


async def test_mutual_tls(mutual: EtcdCluster, authority: Authority):
    await works(with_client(mutual, authority, authority.issue("operator")))


async def test_no_client_certificate(mutual: EtcdCluster, authority: Authority):
    failure = await refusal(with_client(mutual, authority, None))
    require_refused(failure)


async def test_a_client_certificate_that_has_expired(mutual: EtcdCluster, authority: Authority):
    expires = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    failure = await refusal(with_client(mutual, authority, authority.issue("late", expires)))
    require_refused(failure)


async def test_a_client_certificate_of_somebody_else(
    mutual: EtcdCluster, authority: Authority, directory: Path
):
    files = Authority(directory, "strangers").issue("stranger")
    failure = await refusal(with_client(mutual, authority, files))
    require_refused(failure)


async def test_a_renewed_certificate_is_taken_up_at_the_next_connection(
    mutual: EtcdCluster, authority: Authority, directory: Path
):
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    cert_file, key_file = authority.issue("renewed", soon)
    async with opened(with_client(mutual, authority, (cert_file, key_file))) as store:
        record = await put(store, "a", b"1")
        # What stands in the files for a moment, while they are renewed, does no harm either.
        Path(cert_file).unlink()
        await asyncio.to_thread(restart, mutual)
        with pytest.raises(Unavailable, match=r"renewed\.pem"):
            await store.get("a")
        authority.issue("renewed")
        assert await store.get("a") == record


def restart(cluster: EtcdCluster) -> None:
    cluster.members[0].kill()
    cluster.start()


# --- users -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(directory: Path) -> Iterator[EtcdCluster]:
    """`me` may read and write below /test/, `reader` may only read there; tokens live 1 s."""
    flags = ["--auth-token-ttl=1"]
    with EtcdCluster(directory / "guarded", flags=flags) as cluster:
        for user, right in (("me", "readwrite"), ("reader", "read")):
            cluster.ctl("user", "add", f"{user}:secret")
            cluster.ctl("role", "add", user)
            cluster.ctl("role", "grant-permission", user, "--prefix=true", right, "/test/")
            cluster.ctl("user", "grant-role", user, user)
        cluster.ctl("user", "add", "root:root")
        cluster.ctl("user", "grant-role", "root", "root")
        cluster.ctl("auth", "enable")
        yield cluster


def as_user(cluster: EtcdCluster, user: str, password: str = "secret") -> EtcdSettings:
    return replace(cluster.settings(), user=user, password=password)


async def test_a_user_with_a_password(guarded: EtcdCluster):
    await works(as_user(guarded, "me"))


async def test_a_token_that_expires_is_renewed(guarded: EtcdCluster):
    async with opened(as_user(guarded, "me")) as store:
        record = await put(store, "a", b"1")
        tokens = {store.links._link._token}  # type: ignore[union-attr]
        while len(tokens) < 3:
            # etcd renews a token's time whenever it is used, so now and then nobody uses it.
            await asyncio.sleep(2)
            record = await put(store, "a", record.value + b"1")
            tokens.add(store.links._link._token)  # type: ignore[union-attr]
        assert await store.get("a") == record


@pytest.mark.parametrize(
    ("user", "password", "told"),
    [
        ("me", "wrong", "authentication failed"),
        ("nobody", "secret", "authentication failed"),
        ("", "", "user name is empty"),
    ],
)
async def test_a_user_whom_etcd_does_not_know(
    guarded: EtcdCluster, user: str, password: str, told: str
):
    failure = await refusal(as_user(guarded, user, password))
    assert isinstance(failure, NotPermitted)
    assert isinstance(failure, Unusable)
    assert told in str(failure)


async def test_a_user_without_the_right(guarded: EtcdCluster):
    async with opened(as_user(guarded, "me")) as store:
        record = await put(store, "rights", b"1")
    async with opened(as_user(guarded, "reader")) as store:
        assert await store.get("rights") == record
        with pytest.raises(NotPermitted, match="permission denied"):
            await store.compare_and_swap("rights", record.version, b"2")
        assert await store.get("rights") == record
    elsewhere = replace(as_user(guarded, "me"), prefix="/elsewhere/")
    assert isinstance(await refusal(elsewhere), NotPermitted)


async def test_a_user_where_none_is_asked_for(etcd: EtcdCluster):
    failure = await refusal(as_user(etcd, "me"))
    assert isinstance(failure, Unusable)
    assert "authentication is not enabled" in str(failure)
