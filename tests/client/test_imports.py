"""What a client has to install: neither protobuf nor gRPC, and aiohttp only for a directory."""

from transport.test_imports import loaded_by


def test_the_client_stands_alone():
    found = loaded_by("shardlog.client, shardlog.client.blocking")
    assert not found & {"aiohttp", "google", "grpc", "lz4", "uvloop", "zstandard"}
