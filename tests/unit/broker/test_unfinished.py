"""A manager completes what the previous one had begun."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from rocketpy.config import BrokerRole
from tests.support.slow_path import SlowPathRig


@pytest.mark.parametrize(("role", "repeated"), [(BrokerRole.SLAVE, ("Gone", 700)), (BrokerRole.ASYNC_MASTER, "Gone")])
def test_a_slave_repeats_a_deletion_with_the_bound_that_it_had(
    tmp_path: Path, role: BrokerRole, repeated: object
) -> None:
    """Above it lies what the master may have stored for a topic of the same name since then.
    Fault: A slave's repeated removal of a topic removed messages of the recreated topic."""
    rig = SlowPathRig(tmp_path, broker_role=role)
    rig.store.deleted, rig.store.deletion_bounds = {"Gone": True, "Empty": False}, {"Gone": 700}

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(rig.broker.run)
            assert rig.fast_path.named("delete_queues") == [repeated]
            await rig.broker.stop()

    trio.run(main)
