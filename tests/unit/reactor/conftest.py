"""Supervisors over toy workers; request servers without processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketpy.reactor.pools import Pool
    from tests.support.request_bench import Bench, Handler
    from tests.support.toy_workers import Launcher


@pytest.fixture
def launch() -> Iterator[Launcher]:
    """Runs supervisors, each in a child of its own."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from tests.support.toy_workers import Launcher

    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture
def open_bench() -> Iterator[Callable[..., Bench]]:
    """Opens request servers with these processors, in one pool unless pools are given."""
    pytest.importorskip("rocketpy.native.core", exc_type=ImportError)
    from rocketpy.reactor.pools import Pool
    from tests.support.request_bench import Bench

    benches: list[Bench] = []

    def make(processors: dict[int, Handler], pools: tuple[Pool, ...] = (), **more: Any) -> Bench:
        benches.append(Bench.open(pools or (Pool(name="all", tasks=1, queue_max=100),), processors, **more))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()
