"""Job replay: sends archived messages to topics again, each queue in its order, and checks what is stored.

job         the driver's side: makes or reads the plan, runs the parts, checks
plan        parts and steps, and the ledger that says which are done
parts       the workers' side: sends the files of a part
conditions  which rows are sent
check       reads back what was sent, and compares it message by message
"""

from __future__ import annotations

from .job import Replayed, replay

__all__ = ["Replayed", "replay"]
