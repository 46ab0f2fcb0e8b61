"""Structs that C declares, read from bytes and written to bytes through cffi: each layout is declared once, in C."""

from __future__ import annotations

from typing import Any

from .core import ffi


class Layout:
    """One struct type of the headers in csrc/.

    Args:
        name: as C knows it, "rp_origin".
    """

    __slots__ = ("_pointer", "name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size: int = ffi.sizeof(name)
        """Bytes."""
        self._pointer: Any = ffi.typeof(f"{name} *")

    def read(self, data: bytes | bytearray) -> Any:
        """The struct that `data` begins with, in place: it keeps `data` alive, and what is set changes a bytearray.

        Raises: ValueError (too few bytes).
        """
        if len(data) < self.size:
            raise ValueError(f"{self.name} has {self.size} bytes, here are {len(data)}")
        return ffi.from_buffer(self._pointer, data)

    def copy(self, data: bytes) -> Any:
        """A changeable copy of the struct that `data` begins with.

        Raises: ValueError (too few bytes).
        """
        return ffi.new(self._pointer, self.read(data)[0])

    def write(self, *values: object, **fields: object) -> bytes:
        """Return a struct with its first fields, or the named fields, set; the others are zero.

        Raises: OverflowError (a number beyond its field).
        """
        assert not (values and fields)
        return bytes(ffi.buffer(ffi.new(self._pointer, values or fields)))
