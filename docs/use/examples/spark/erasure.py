"""Erase a person from an archive in a Delta table (`rocketpy pipeline archive --format delta`), also from old versions.

pip install "rocketpy-mq[delta]"; python docs/use/examples/spark/erasure.py /tables/messages user-7

Stop runs of the archive first. Later ones go on behind the erased messages. Messages stay in the brokers until these
expire there, and in versions that an object store keeps: another archive of the topic would have them again.
"""

import re
import sys

from deltalake import DeltaTable

LOG_RETENTION, DEFAULT = "delta.logRetentionDuration", "interval 30 days"


def run(table: str, key: str) -> int:
    """Delete the messages that have this key. Returns their number. Files of old versions are removed at once: nobody
    may be reading one."""
    if not re.fullmatch(r"[\w.@-]+", key):
        raise ValueError(f"{key} is no key")
    archive = DeltaTable(table)
    deleted = archive.delete(f"array_has(string_to_array(keys, ' '), '{key}')")
    archive.vacuum(0, dry_run=False, enforce_retention_duration=False)
    forget_log(archive)
    return int(deleted["num_deleted_rows"])


def forget_log(archive: DeltaTable) -> None:
    """Replace the log up to now by a checkpoint: old entries have the key in conditions and in statistics of files."""
    kept = archive.metadata().configuration.get(LOG_RETENTION, DEFAULT)
    archive.alter.set_table_properties({LOG_RETENTION: "interval 0 days"})
    archive.create_checkpoint()
    archive.cleanup_metadata()
    archive.alter.set_table_properties({LOG_RETENTION: kept})


if __name__ == "__main__":
    print(run(*sys.argv[1:]))
