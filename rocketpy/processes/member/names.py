"""Names that a broker without failover needs as well: loading more would make every start longer."""

from __future__ import annotations

INCARNATION_FILE = "incarnation"
EPOCH_FILE = "epochFileCheckpoint"
EXIT_OTHER_EPOCH = 75  # of a process tree: it cannot serve the epoch that is wanted; another election has to be held
