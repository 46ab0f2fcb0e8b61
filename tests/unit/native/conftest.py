"""One suite for both twins."""

import importlib.util
from types import ModuleType

import pytest

from rocketpy.native import Native, choose, require_core

CORE_IS_BUILT = importlib.util.find_spec("rocketpy.native._rocketpy") is not None


@pytest.fixture(
    params=["python", pytest.param("c", marks=pytest.mark.skipif(not CORE_IS_BUILT, reason="the core is not built"))]
)
def native(request: pytest.FixtureRequest) -> Native:
    return choose(request.param)


@pytest.fixture
def core() -> ModuleType:
    """`ffi` and `lib`, for what only C can be asked."""
    if not CORE_IS_BUILT:
        pytest.skip("the core is not built")
    return require_core()
