"""An etcd that was restored is noticed; one that answers late, or out of order, is not taken for one."""

from __future__ import annotations

import pytest

from rocketpy.failover.etcd.continuity import Continuity, EtcdReplaced, Seen

KNOWN = Seen("c", 20, 15, b"b is master", 2)


def known() -> Continuity:
    continuity = Continuity()
    continuity.take(Seen("c", 10, 5, b"a is master", 1), 0)
    continuity.take(KNOWN, 10)
    return continuity


@pytest.mark.parametrize(
    ("seen", "asked_at"),
    [
        (Seen("c", 20, 15, b"b is master", 2), 20),  # the same again
        (Seen("c", 25, 15, b"b is master", 2), 20),  # another key has changed
        (Seen("c", 25, 22, b"c is master", 3), 20),
        (Seen("c", 12, 5, b"a is master", 1), 10),  # an answer that was overtaken
        (Seen("c", 25), 20),  # the operator has removed the keys of the group
    ],
)
def test_answers_of_one_history(seen: Seen, asked_at: int) -> None:
    continuity = known()
    continuity.take(seen, asked_at)
    continuity.check()
    assert continuity.revision == max(20, seen.revision)


@pytest.mark.parametrize(
    ("seen", "asked_at", "why"),
    [
        (Seen("d", 25, 15, b"b is master", 2), 20, "cluster d answers, before it was c"),
        (Seen("c", 12, 5, b"a is master", 1), 20, "at revision 12, before it was at 20"),
        (Seen("c", 25, 5, b"a is master", 1), 20, "`state` of revision 5 was not there at revision 20"),
        (Seen("c", 25, 15, b"a is master", 2), 20, "`state` of revision 15 was not there"),
        (Seen("c", 25, 22, b"a is master", 1), 20, "epoch 1, before it had 2"),
    ],
)
def test_a_restored_etcd_is_never_trusted_again(seen: Seen, asked_at: int, why: str) -> None:
    """Fault: An etcd restored from a snapshot was trusted, so a member without acknowledged messages could be
    elected."""
    continuity = known()
    with pytest.raises(EtcdReplaced, match=why):
        continuity.take(seen, asked_at)
    with pytest.raises(EtcdReplaced, match=why):
        continuity.check()
    with pytest.raises(EtcdReplaced, match=why):
        continuity.take(KNOWN, 20)
    assert continuity.last == KNOWN


def test_the_value_of_state_is_known_for_its_revision_only() -> None:
    assert known().state_at(15) == b"b is master"
    assert known().state_at(5) is None
    assert Continuity().state_at(0) is None
