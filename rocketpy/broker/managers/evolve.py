"""Copies of bodies with some members changed: tables hold them as values and never change one in place."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import attrs

from rocketpy.remoting.bodies.schema import Body

_B = TypeVar("_B", bound=Body)


def evolved(body: _B, **changes: object) -> _B:
    """`body` with these attributes; every Body is an attrs class, which the type checker cannot see."""
    return cast(_B, attrs.evolve(cast(Any, body), **changes))
