"""Compressed bodies. zlib is always there; LZ4 and zstd need the extras `lz4` and `zstd`.

A compressed body declares no size, so it is inflated against a limit: a few kilobytes must not become gigabytes.
"""

from __future__ import annotations

import importlib
import zlib
from types import ModuleType

from rocketpy.errors import CompressionError

from .sys_flag import CompressionType, compression_type, is_compressed, without_compression

COMPRESS_LEVEL = 5  # what Java clients use
INFLATED_SIZE_MAX = 64 * 1024 * 1024  # sixteen times the largest body that official producers send by default
ZSTD_PIECE_SIZE = 1024
LEVELS = {  # of each kind, from the fastest to the smallest
    CompressionType.LEGACY_ZLIB: range(10),
    CompressionType.ZLIB: range(10),
    CompressionType.LZ4: range(17),
    CompressionType.ZSTD: range(1, 23),
}
LIBRARIES = {CompressionType.LZ4: ("lz4.frame", "lz4"), CompressionType.ZSTD: ("zstandard", "zstd")}  # module, extra


def check_compression(kind: CompressionType, level: int) -> None:
    """Check that bodies can be compressed so.

    Raises:
        CompressionError: the library for `kind` is not installed. ValueError: `kind` has no such level.
    """
    levels = LEVELS[kind]
    if level not in levels:
        raise ValueError(f"compress_level is {level}, allowed for {kind.name} are {levels[0]} to {levels[-1]}")
    if kind in LIBRARIES:
        _library(kind)


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = COMPRESS_LEVEL) -> bytes:
    """The compressed body. LZ4 has independent blocks: the reader of Java clients knows no others.

    Raises:
        CompressionError: the library for `kind` is not installed.
    """
    if kind is CompressionType.LZ4:
        return bytes(_library(kind).compress(body, compression_level=level, block_linked=False))
    if kind is CompressionType.ZSTD:
        return bytes(_library(kind).ZstdCompressor(level=level).compress(body))
    return zlib.compress(body, level)


def decompress(body: bytes, kind: int, *, size_max: int = INFLATED_SIZE_MAX) -> bytes:
    """The body as it was.

    Raises:
        CompressionError: unknown kind, library not installed, damaged data, or more than `size_max` bytes.
    """
    if kind in (CompressionType.LEGACY_ZLIB, CompressionType.ZLIB):
        inflated, complete = _inflate_zlib(body, size_max)
    elif kind == CompressionType.LZ4:
        inflated, complete = _inflate_lz4(body, size_max)
    elif kind == CompressionType.ZSTD:
        inflated, complete = _inflate_zstd(body, size_max)
    else:
        raise CompressionError(f"unknown compression type {kind}")
    if len(inflated) > size_max:
        raise CompressionError(f"body of {len(body)} bytes inflates to more than {size_max} bytes")
    if not complete:
        raise CompressionError(f"compressed body of {len(body)} bytes is cut short")
    return inflated


def decompress_body(body: bytes, sys_flag: int, *, size_max: int = INFLATED_SIZE_MAX) -> tuple[bytes, int]:
    """The body as the producer had it and the sys_flag that goes with it; unchanged if it is not compressed.

    Raises:
        CompressionError: as `decompress`.
    """
    if not is_compressed(sys_flag):
        return body, sys_flag
    return decompress(body, compression_type(sys_flag), size_max=size_max), without_compression(sys_flag)


def _library(kind: CompressionType) -> ModuleType:
    module, extra = LIBRARIES[kind]
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        needed = f"{kind.name} bodies need the extra {extra!r}"
        raise CompressionError(f"{needed}: pip install 'rocketpy-mq[{extra}]'") from exc


def _inflate_zlib(body: bytes, size_max: int) -> tuple[bytes, bool]:
    inflater = zlib.decompressobj()
    try:
        return inflater.decompress(body, size_max + 1), inflater.eof
    except zlib.error as exc:
        raise CompressionError(f"damaged zlib body of {len(body)} bytes: {exc}") from exc


def _inflate_lz4(body: bytes, size_max: int) -> tuple[bytes, bool]:
    inflater = _library(CompressionType.LZ4).LZ4FrameDecompressor()
    try:
        return bytes(inflater.decompress(body, size_max + 1)), bool(inflater.eof)
    except (RuntimeError, EOFError) as exc:
        raise CompressionError(f"damaged LZ4 body of {len(body)} bytes: {exc}") from exc


def _inflate_zstd(body: bytes, size_max: int) -> tuple[bytes, bool]:
    """Fed in small pieces: the library has no limit of its own, and one piece can become at most some megabytes."""
    zstandard = _library(CompressionType.ZSTD)
    inflater = zstandard.ZstdDecompressor().decompressobj()
    inflated = bytearray()
    try:
        for position in range(0, len(body), ZSTD_PIECE_SIZE):
            inflated += inflater.decompress(body[position : position + ZSTD_PIECE_SIZE])
            if inflater.eof or len(inflated) > size_max:
                break
    except zstandard.ZstdError as exc:
        raise CompressionError(f"damaged zstd body of {len(body)} bytes: {exc}") from exc
    return bytes(inflated), bool(inflater.eof)
