"""Erase a person from an archive in a Delta table (`rocketpy pipeline archive --format delta`), also from old versions.

pip install "rocketpy-mq[delta]"; python docs/use/examples/spark/erasure.py /tables/messages user-7
"""

import re
import sys

from deltalake import DeltaTable


def run(table: str, key: str) -> int:
    """Delete the messages that have this key. Returns their number. Files of old versions are removed at once: nobody
    may be reading one."""
    if not re.fullmatch(r"[\w.@-]+", key):
        raise ValueError(f"{key} is no key")
    archive = DeltaTable(table)
    deleted = archive.delete(f"array_has(string_to_array(keys, ' '), '{key}')")
    archive.vacuum(0, dry_run=False, enforce_retention_duration=False)
    return int(deleted["num_deleted_rows"])


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
