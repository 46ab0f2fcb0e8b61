"""Selectors in this process, turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.selector_rig import SelectorRig


@pytest.fixture
def make_rig() -> Iterator[Callable[..., SelectorRig]]:
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from tests.support.selector_rig import SelectorRig

    rigs: list[SelectorRig] = []

    def make(**settings: int) -> SelectorRig:
        rigs.append(SelectorRig(**settings))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., SelectorRig]) -> SelectorRig:
    return make_rig()
