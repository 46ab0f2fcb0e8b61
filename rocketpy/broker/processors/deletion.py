"""How long a request waits until the files of deleted queues are removed, and what it says if that takes longer."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from rocketpy.remoting.hot_lane import Completion

DELETION_WAIT_S = 3.0
FILES_ARE_LEFT = (
    "deleted; consume queue files are not removed yet: the store worker removes them as soon as it has built the "
    "queues of what was stored before. If that takes long, look at the broker's log and at the disk of storePathRootDir"
)


async def wait_for(deletions: Sequence[Completion]) -> str | None:
    """The remark of the answer: None if all files are gone."""
    with trio.move_on_after(DELETION_WAIT_S):
        for deletion in deletions:
            await deletion.wait()
    return None if all(deletion.is_set() for deletion in deletions) else FILES_ARE_LEFT
