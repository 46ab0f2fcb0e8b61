"""Value, FrozenValue: equality and repr for attrs classes that have many fields, or that are many.

    @attrs.frozen(eq=False, repr=False)
    class Limits(Value):
        ...

attrs writes both for each class anew, and Python compiles them at each start: 7 % of a broker's CPU time and 5 % of
its idle memory (processes/boot/memory.py).

Short: one class and its frozen kind, for the configuration, headers and bodies alike.
"""

from __future__ import annotations

from typing import Any, ClassVar


class Value:
    """Base of an attrs class, which compares and shows its fields. It has no hash."""

    __slots__ = ()

    __attrs_attrs__: ClassVar[Any]  # an AttrsInstance, once decorated

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.__attrs_attrs__)

    __hash__ = None  # type: ignore[assignment]  # one that may change has none either

    def __repr__(self) -> str:
        members = (f"{field.name}={getattr(self, field.name)!r}" for field in self.__attrs_attrs__ if field.repr)
        return f"{self.__class__.__qualname__}({', '.join(members)})"


class FrozenValue(Value):
    """A Value that never changes, so it has a hash and may be a key."""

    __slots__ = ()

    def __hash__(self) -> int:  # type: ignore[override]  # Value has none
        return hash((self.__class__, *(getattr(self, field.name) for field in self.__attrs_attrs__)))
