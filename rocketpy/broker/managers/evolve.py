"""Copies of bodies with some members changed. Tables never change a body in place."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import attrs

from rocketpy.remoting.bodies.schema import Body

_B = TypeVar("_B", bound=Body)


def evolved(body: _B, **changes: object) -> _B:
    """A copy of `body` with these attributes. Every Body is an attrs class, which the type checker cannot know."""
    return cast(_B, attrs.evolve(cast(Any, body), **changes))
