"""What a client has to install: the data plane needs neither protobuf nor gRPC."""

import subprocess
import sys


def loaded_by(modules: str) -> set[str]:
    code = f"import sys, {modules}; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_data_plane_stands_alone():
    data_plane = "shardlog.transport.endpoints, shardlog.transport.frame_messages"
    found = loaded_by(f"{data_plane}, shardlog.transport.batch")
    assert not found & {"google", "grpc", "lz4", "uvloop", "zstandard"}
    assert "google" in loaded_by("shardlog.transport.wire"), "the test looks right"
