"""`kubectl_complete-shardlog`: what kubectl asks when a shell completes `kubectl shardlog ...`.

It gets the words so far, the last of which is not finished, and prints one candidate on each line;
the last line says that file names are none of them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from click.shell_completion import ShellComplete

from shardlog.cli.kubectl import main as plugin

NO_FILES = ":4"


def candidates(words: Sequence[str]) -> list[str]:
    *before, last = words or [""]
    found = ShellComplete(plugin, {}, "kubectl shardlog", "").get_completions(before, last)
    return [f"{each.value}\t{each.help}" if each.help else str(each.value) for each in found]


def main() -> None:
    for each in candidates(sys.argv[1:]):
        print(each)
    print(NO_FILES)


if __name__ == "__main__":
    main()
