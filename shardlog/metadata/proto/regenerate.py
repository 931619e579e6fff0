"""Make the Python code for etcd.proto: `make proto`.

The code is committed, so that nobody needs protoc to install Shardlog; a test holds it to the
.proto file.
"""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).parent
GENERATED = SOURCES.parent / "generated"


def regenerate(target: Path) -> None:
    """Write the module and its stub into `target`."""
    from grpc_tools import protoc

    code = protoc.main(
        ["protoc", f"-I{SOURCES}", f"--python_out={target}", f"--pyi_out={target}", "etcd.proto"]
    )
    if code:
        raise SystemExit(f"protoc failed with {code}")


if __name__ == "__main__":
    regenerate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
