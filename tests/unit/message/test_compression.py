"""Compression kinds, their limits and their failures."""

import importlib.util
import random
import zlib

import pytest

from rocketpy.client.options import ProducerOptions
from rocketpy.errors import CompressionError
from rocketpy.message import compression
from rocketpy.message.compression import LEVELS, compress, decompress, decompress_body
from rocketpy.message.sys_flag import CompressionType, with_compression

BODY = b"rocket" * 1000
INSTALLED = [CompressionType.LEGACY_ZLIB, CompressionType.ZLIB] + [
    kind
    for kind, module in ((CompressionType.LZ4, "lz4"), (CompressionType.ZSTD, "zstandard"))
    if importlib.util.find_spec(module)
]


@pytest.mark.parametrize("kind", INSTALLED)
def test_round_trip(kind: CompressionType) -> None:
    compressed = compress(BODY, kind)
    assert len(compressed) < len(BODY)
    assert decompress(compressed, kind) == BODY
    assert decompress_body(compressed, with_compression(0x4, kind)) == (BODY, 0x4)


@pytest.mark.parametrize("kind", INSTALLED)
def test_cut_short(kind: CompressionType) -> None:
    with pytest.raises(CompressionError):
        decompress(compress(BODY, kind)[:-5], kind)


@pytest.mark.parametrize("kind", INSTALLED)
def test_damaged(kind: CompressionType) -> None:
    with pytest.raises(CompressionError):
        decompress(b"no compressed data at all", kind)


@pytest.mark.parametrize("kind", INSTALLED)
def test_bomb_is_refused(kind: CompressionType) -> None:
    bomb = compress(bytes(4_000_000), kind)
    with pytest.raises(CompressionError, match="more than 1000000"):
        decompress(bomb, kind, size_max=1_000_000)


def test_java_flag_value() -> None:
    assert with_compression(0, CompressionType.ZLIB) == 769
    assert decompress_body(zlib.compress(BODY), 1) == (BODY, 0)
    assert decompress_body(BODY, 0) == (BODY, 0)


def test_unknown_kind() -> None:
    with pytest.raises(CompressionError, match="type 5"):
        decompress(b"", 5)


def test_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(compression.importlib, "import_module", absent)
    for kind, extra in ((CompressionType.LZ4, "lz4"), (CompressionType.ZSTD, "zstd")):
        with pytest.raises(CompressionError, match=rf"pip install 'rocketpy-mq\[{extra}\]'"):
            decompress(b"x", kind)
        with pytest.raises(CompressionError, match=rf"pip install 'rocketpy-mq\[{extra}\]'"):
            ProducerOptions(compression=kind)


@pytest.mark.parametrize("kind", INSTALLED)
def test_levels(kind: CompressionType) -> None:
    body = " ".join(random.Random(1).choices([f"word {number}" for number in range(1000)], k=20_000)).encode()
    sizes = [len(compress(body, kind, level)) for level in (LEVELS[kind][1], LEVELS[kind][-1])]
    assert sizes[1] < sizes[0] < len(body)
    with pytest.raises(ValueError, match=f"compress_level is 99, allowed for {kind.name} are"):
        ProducerOptions(compression=kind, compress_level=99)


@pytest.mark.skipif(CompressionType.LZ4 not in INSTALLED, reason="lz4 is not installed")
def test_lz4_blocks_are_independent() -> None:
    """Java's LZ4FrameInputStream refuses linked blocks: bit 5 of the frame's flags."""
    assert compress(BODY, CompressionType.LZ4)[4] & 0x20
