"""Offsets that look alike and must never be mixed: the type checker keeps them apart."""

from typing import NewType

PhyOffset = NewType("PhyOffset", int)
"""Bytes from the start of the CommitLog."""

QueueOffset = NewType("QueueOffset", int)
"""Entries from the start of one queue (its ConsumeQueue index)."""
