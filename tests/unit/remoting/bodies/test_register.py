"""No stream grows beyond its bounds, and no step beyond a piece."""

from __future__ import annotations

import random
import zlib

import pytest

from rocketpy.errors import BodyInvalid
from rocketpy.remoting.bodies.register import FREE_BYTES, INPUT_BYTES, PIECE_BYTES, RATIO_MAX, inflated

NOISE = random.Random(9).randbytes(5 * INPUT_BYTES)


@pytest.mark.parametrize("data", [b"", b"a", bytes(FREE_BYTES), NOISE, NOISE * 3])
def test_pieces_are_the_whole_and_bounded(data: bytes) -> None:
    pieces = list(inflated(zlib.compress(data)))
    assert b"".join(pieces) == data and max(map(len, pieces), default=0) <= PIECE_BYTES


@pytest.mark.parametrize("data", [b"", b"junk", zlib.compress(NOISE)[:-1], zlib.compress(b"abc")[:-5]])
def test_damage_is_told(data: bytes) -> None:
    with pytest.raises(BodyInvalid, match=r"cut short|not a zlib stream"):
        list(inflated(data))


def test_the_ratio_is_bounded_beyond_a_megabyte() -> None:
    bomb = zlib.compress(bytes(64 * FREE_BYTES), 9)
    size = 0
    with pytest.raises(BodyInvalid, match=f"inflates to more than {RATIO_MAX * len(bomb)} bytes"):
        for piece in inflated(bomb):
            size += len(piece)
    assert size <= RATIO_MAX * len(bomb)


def test_the_total_is_bounded() -> None:
    """Fault: A compressed registration of 650 KB inflated without a bound and blocked the name server for half a
    minute."""
    with pytest.raises(BodyInvalid, match="more than 1000 bytes"):
        list(inflated(zlib.compress(bytes(1001)), bytes_max=1000))
