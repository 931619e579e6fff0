"""Which etcd: what a URL means, and what is refused with a line for a person."""

import pytest

from shardlog.metadata.etcd.settings import EtcdSettings, EtcdTls
from shardlog.metadata.failures import CannotOpen, Unusable


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("etcd://a", EtcdSettings(("a:2379",))),
        ("etcd://a:1/", EtcdSettings(("a:1",), "/shardlog/")),
        ("etcd://a:1,b,[::1]:3/x/y", EtcdSettings(("a:1", "b:2379", "[::1]:3"), "/x/y/")),
        ("etcds://a/x/", EtcdSettings(("a:2379",), "/x/", EtcdTls())),
        (
            "etcds://a/x/?ca=c.pem&cert=m.pem&key=m.key&name=etcd",
            EtcdSettings(("a:2379",), "/x/", EtcdTls("c.pem", "m.pem", "m.key", "etcd")),
        ),
        (
            "etcds://me:p%40ss@a,b",
            EtcdSettings(("a:2379", "b:2379"), tls=EtcdTls(), user="me", password="p@ss"),
        ),
    ],
)
def test_a_url_is_settings(url: str, settings: EtcdSettings):
    assert EtcdSettings.from_url(url) == settings


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://a", "the URL is not etcd://"),
        ("etcd:a", "no endpoint is given"),
        ("etcd:///x", "no endpoint is given"),
        ("etcd://a:b", "the endpoint 'a:b' is not HOST or HOST:PORT"),
        ("etcd://a:0", "is not HOST or HOST:PORT"),
        ("etcd://a:65536", "is not HOST or HOST:PORT"),
        ("etcd://a/x y", "the prefix '/x y/' is not printable"),
        (f"etcd://a/{'x' * 300}", "of at most 256 bytes"),
        ("etcd://a/x#y", "the URL is not etcd://"),
        ("etcd://a/x?ca=c.pem", "write etcds:// for TLS"),
        ("etcds://a/x?CA=c.pem", "unknown option 'CA'"),
        ("etcds://a/x?cert=m.pem", "needs both its file and its key's"),
        ("etcd://:secret@a", "a password needs a user"),
    ],
)
def test_a_bad_url_is_refused_in_one_line(url: str, told: str):
    with pytest.raises(CannotOpen, match="etcd: ") as caught:
        EtcdSettings.from_url(url)
    assert told in str(caught.value)
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value, Unusable)


@pytest.mark.parametrize(
    "given",
    [
        {"endpoints": ()},
        {"prefix": "x/"},
        {"prefix": "/x"},
        {"request_timeout_ms": 0},
        {"connect_timeout_ms": 0},
        {"keepalive_ms": 4999},
    ],
)
def test_bad_settings_are_refused(given: dict[str, object]):
    with pytest.raises(CannotOpen):
        EtcdSettings(**{"endpoints": ("a",), **given})  # type: ignore[arg-type]


def test_a_password_is_not_shown():
    settings = EtcdSettings.from_url("etcds://me:secret@a:1,b:2/x/")
    assert settings.where == "etcds://a:1,b:2/x/"
    assert "secret" not in repr(settings)
