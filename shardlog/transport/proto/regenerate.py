"""Make the Python code for the .proto files: `make proto`.

protoc writes imports as if `shardlog.v1` were a Python package.  It is not, and must not be one
beside this library, so they are turned to where the code stands.  The code is committed, so that
nobody needs protoc to install Shardlog; a test holds it to the .proto files.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
GENERATED = SOURCES.parent / "generated"
PACKAGE = "shardlog.transport.generated"


def regenerate(target: Path) -> None:
    """Write the modules and their stubs into `target`."""
    from grpc_tools import protoc

    names = sorted(str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*.proto"))
    with tempfile.TemporaryDirectory() as made:
        code = protoc.main(
            ["protoc", f"-I{SOURCES}", f"--python_out={made}", f"--pyi_out={made}", *names]
        )
        if code:
            raise SystemExit(f"protoc failed with {code}")
        for path in sorted((Path(made) / "shardlog" / "v1").iterdir()):
            text = re.sub(r"^from shardlog\.v1 import", f"from {PACKAGE} import", path.read_text(),
                          flags=re.MULTILINE)  # fmt: skip
            (target / path.name).write_text(text)


if __name__ == "__main__":
    regenerate(Path(sys.argv[1]) if len(sys.argv) > 1 else GENERATED)
