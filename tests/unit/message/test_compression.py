"""Compression kinds, their limits and their failures."""

import importlib.util
import zlib

import pytest

from rocketpy.errors import CompressionError
from rocketpy.message import compression
from rocketpy.message.compression import compress, decompress, decompress_body
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
    for kind, package in ((CompressionType.LZ4, "lz4"), (CompressionType.ZSTD, "zstandard")):
        with pytest.raises(CompressionError, match=f"pip install {package}"):
            decompress(b"x", kind)
