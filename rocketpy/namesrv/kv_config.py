"""The key-value table: the only thing that a name server keeps on disk.

    {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicA":"broker-a:4;broker-b:4"}}}

Every change is on the disk before it is visible and before it is answered; a change that cannot be written does not
happen. (The reference changes its memory first and only logs a failure to write.)

Each change writes the whole table, so its size has a bound: a change that would exceed it is refused. A file that is
already larger is served, and its table may shrink.

Source: RocketMQ 4.9 `KVConfigManager`, `KVConfigSerializeWrapper`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import trio

from rocketpy.atomic_file import read_with_backup, write_atomically
from rocketpy.errors import ConfigError
from rocketpy.remoting.limits import require

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # namespace: topic -> "brokerA:4;brokerB:4"

ENTRIES_MAX = 100_000  # keys and namespaces; an empty namespace counts, since it stays
BYTES_MAX = 8 * 1024 * 1024  # of the file: the largest namespace fits the frame of an answer

Table = dict[str, dict[str, str]]


class KVConfigManager:
    """namespace -> key -> value, all text."""

    def __init__(self, path: Path, table: Table | None = None) -> None:
        self._path = path
        self._table: Table = table or {}
        self._writing = trio.Lock()

    @classmethod
    def load(cls, path: Path) -> KVConfigManager:
        """The table of `path`, empty on a first start.

        Raises:
            ConfigError: the file is damaged and so is its backup. (The reference starts empty, and overwrites it.)
        """
        manager = cls(path)
        manager.reload()
        return manager

    def reload(self) -> None:
        """Read the file again, before anything is served. Raises: as `load`."""
        try:
            self._table = read_with_backup(self._path, decode_table) or {}
        except (ValueError, OSError) as exc:
            raise ConfigError(f"cannot read the key-value table: {exc}", key="kvConfigPath") from exc

    @property
    def obstacle(self) -> str:
        """Why this process may not write the file; empty, if it may."""
        place = next(found for found in self._path.absolute().parents if found.exists())
        if os.access(place, os.W_OK | os.X_OK):
            return ""
        return f"user {os.geteuid()} may not write to {place}, whose owner is user {place.stat().st_uid}"

    def value(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None if it never existed. It stays, empty, when its last key is deleted."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    @property
    def table(self) -> Mapping[str, Mapping[str, str]]:
        """The whole table. It is never modified; a change creates a new one."""
        return self._table

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key.

        Raises: nothing was changed then.
            RequestRefused: the table would be too large.
            OSError: it cannot be written.
        """
        async with self._writing:
            await self._replace(self._table | {namespace: self._table.get(namespace, {}) | {key: value}})

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a key, if it is there. Raises OSError: nothing was changed."""
        async with self._writing:
            old = self._table.get(namespace)
            if old is not None and key in old:
                rest = {other: value for other, value in old.items() if other != key}
                await self._replace(self._table | {namespace: rest})

    async def _replace(self, table: Table) -> None:
        def write() -> None:  # encoding in a thread alternates with the loop
            data = encode_table(table)
            require(_size_fault(self._table, table, len(data)))
            write_atomically(self._path, data)

        await trio.to_thread.run_sync(write)
        self._table = table


def _size_fault(old: Table, new: Table, size: int) -> str | None:
    """Return why `new`, `size` bytes as a file, may not follow `old`; None: it may."""
    entries = _entry_count(new)
    if entries > max(ENTRIES_MAX, _entry_count(old)):
        found, bound = f"{entries} namespaces and keys", ENTRIES_MAX
    elif size > BYTES_MAX and size > len(encode_table(old)):
        found, bound = f"{size} bytes", BYTES_MAX
    else:
        return None
    return f"the key-value table would have {found}, at most {bound} are allowed; delete keys with deleteKvConfig"


def _entry_count(table: Table) -> int:
    return len(table) + sum(len(values) for values in table.values())


def encode_table(table: Mapping[str, Mapping[str, str]]) -> bytes:
    return json.dumps({"configTable": table}, indent="\t", ensure_ascii=False, sort_keys=True).encode()


def decode_table(data: bytes) -> Table:
    """Read the file's JSON. Raises ValueError: it is not of that form."""
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    table = document.get("configTable") if isinstance(document, dict) else None
    if table is None:
        table = {}
    if not isinstance(table, dict) or not all(isinstance(values, dict) for values in table.values()):
        raise ValueError("configTable is not an object of objects")
    return {
        str(namespace): {str(key): str(value) for key, value in values.items() if value is not None}
        for namespace, values in table.items()
    }
