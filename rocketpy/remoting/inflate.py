"""Inflate what a peer has deflated, piece by piece, within bounds that no stream of a few kilobytes can pass.

A deflated body declares no size and may grow a thousandfold. The total is bounded, and beyond the first megabyte so is
the ratio: what legitimate bodies repeat, names and settings of topics, shrinks to a twentieth or a fortieth.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from rocketpy.errors import BodyInvalid

INPUT_BYTES = 16_384
PIECE_BYTES = 65_536
RATIO_MAX = 100
FREE_BYTES = 1024 * 1024  # up to here any ratio will do
INFLATED_BYTES_MAX = 64 * 1024 * 1024


def inflated(data: bytes, *, bytes_max: int = INFLATED_BYTES_MAX) -> Iterator[bytes]:
    """The pieces of a zlib stream, of at most PIECE_BYTES each.

    Raises:
        BodyInvalid: it is damaged or cut short, or larger than `bytes_max` or than the ratio allows.
    """
    allowed = min(bytes_max, max(FREE_BYTES, RATIO_MAX * len(data)))
    inflater = zlib.decompressobj()
    size = 0
    for position in range(0, len(data), INPUT_BYTES):
        rest = data[position : position + INPUT_BYTES]
        while not inflater.eof:
            try:
                piece = inflater.decompress(rest, PIECE_BYTES)
            except zlib.error as exc:
                raise BodyInvalid(f"body of {len(data)} bytes is not a zlib stream: {exc}") from exc
            rest = inflater.unconsumed_tail
            if not piece:
                break
            size += len(piece)
            if size > allowed:
                raise BodyInvalid(f"compressed body of {len(data)} bytes inflates to more than {allowed} bytes")
            yield piece
    if not inflater.eof:
        raise BodyInvalid(f"compressed body of {len(data)} bytes is cut short")
