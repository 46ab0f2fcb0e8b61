"""A task of the store's sources: one piece of the log."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from .segments import Piece
from .worker import Origin


class PiecePartition(InputPartition):
    """One task: a piece of the log."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece)
        self.origin = Origin()
