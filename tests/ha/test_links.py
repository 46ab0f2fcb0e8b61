"""Links that lose, delay, reorder and damage what members say to each other: they cost time, and no message."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from tests.support.ha.clients import Clients
from tests.support.ha.flipping import FlippingProxy, flipping_proxy
from tests.support.ha.group import Group, Member, real_group
from tests.support.ha.needs import needs_network

BAD_S = 8.0  # of traffic over the bad link
PROXY_HOST = "127.0.0.2"  # of the HA ports as other members dial them
FLIP_EVERY = 40_000  # bytes
FLIPS = 10


@needs_network
@pytest.mark.parametrize("loss", [0.0, 0.03])
def test_packets_are_late_lost_and_in_another_order(networked: Group, seed: int, loss: float) -> None:
    """Between members and etcd, through a failover."""
    assert networked.network is not None
    with Clients(networked.servers, networked.history, seed):
        first = networked.wait_for_master()
        with networked.network.bad_link("a", "b", "etcd", delay_ms=10, jitter_ms=20, loss=loss, seed=seed):
            networked.history.happened(f"packets between a, b and etcd are 10 to 30 ms late, {loss:.0%} are lost")
            time.sleep(BAD_S)
            networked.wait_for_master()
            networked.history.happened(f"kill -9 of all of {networked.master()}")
            first = networked.master() or first
            networked.members[first].kill_all()
            networked.wait_for_lone_master(networked.other(first))
            networked.members[first].begin()
            time.sleep(BAD_S)
        networked.history.happened("the link is good again")
        networked.wait_until_healed()
    networked.check()


def test_bits_that_flip_on_the_way_to_the_slave(tmp_path: Path, seed: int) -> None:
    """A damaged frame is not published; the slave connects again. Both directions of the HA connection."""
    proxies: list[FlippingProxy] = []
    with ExitStack() as stack:

        def arrange(member: Member) -> None:
            member.settings |= {"bindAddress": "127.0.0.1", "brokerIP2": PROXY_HOST}
            near, far = (PROXY_HOST, member.port + 1), ("127.0.0.1", member.port + 1)
            name = f"{seed}/{member.name}"
            proxies.append(stack.enter_context(flipping_proxy(near, far, every=FLIP_EVERY, seed=name)))

        group = stack.enter_context(real_group(tmp_path, arrange=arrange))
        with Clients(group.servers, group.history, seed):
            group.wait_for_master()
            group.history.happened("bits flip")
            for proxy in proxies:
                proxy.flips = True
            group.wait_for(lambda: sum(proxy.flipped for proxy in proxies) >= FLIPS, f"{FLIPS} flipped bits")
            for proxy in proxies:
                proxy.flips = False
            group.history.happened("no more bits flip")
            group.wait_until_healed()
        group.check()
        print(f"{sum(proxy.flipped for proxy in proxies)} flipped bits")
