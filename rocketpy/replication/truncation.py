"""haTruncateDiverged: has a slave's log cut where it begins to differ from its master's, when it is opened next."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import attrs

from rocketpy.store.files import DiskFiles
from rocketpy.store.recovery.diverged import NoRoomAside, check_room, request_cut

from .errors import Diverged

logger = logging.getLogger(__name__)


@attrs.frozen
class Truncation:
    """Of the store at `root`. `size_max`: bytes of all that may be kept aside (haDivergedSizeMax)."""

    root: Path
    size_max: int

    def ask(self, why: Diverged, master: str, end: int, find: Callable[[], int]) -> None:
        """Ask for a cut; on return the request is on the disk, and the store has to be opened again.

        Args:
            why: what is wrong with the log, which ends at `end`.
            master: its address, for the log.
            find: where the log has to end (common_part.find_cut).
        Raises:
            Diverged: the log cannot be cut. MasterUnusable: as `find`. StoreError: the request cannot be written.
        """
        try:
            cut = find()
            check_room(DiskFiles(), self.root, cut, end, self.size_max)
        except (Diverged, NoRoomAside) as exc:
            raise Diverged(f"{why}; it is not cut: {exc}") from exc
        request_cut(self.root, cut)
        logger.warning(
            "the log ends at %d and differs from that of the master %s from %d on (%s): opening the store again, to "
            "cut %d bytes and keep them aside (haTruncateDiverged)",
            end,
            master,
            cut,
            why,
            end - cut,
        )
