"""A process that writes to a SQLite metadata file until it is done or killed.

    writer.py PATH KEY COUNT

It increments the number under `shared` and the one under KEY in turn, and prints one line for each
write that was answered: key, version, number.
"""

import asyncio
import sys

from shardlog.metadata.sqlite import SqliteStore


async def main(path: str, own: str, count: int) -> None:
    store = await SqliteStore.open(path)
    print("open", flush=True)
    for _ in range(count):
        for key in ("shared", own):
            await increment(store, key)
    await store.close()


async def increment(store: SqliteStore, key: str) -> None:
    while True:
        current = await store.get(key)
        number = int(current.value) + 1 if current else 1
        version = current.version if current else 0
        swapped = await store.compare_and_swap(key, version, b"%d" % number)
        if swapped.done and swapped.current:
            print(key, swapped.current.version, number, flush=True)
            return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
