"""The driver is built on first use: it is no part of the package, so no other build makes it."""

import importlib.util

if importlib.util.find_spec("bench.driver._driver") is None:
    from bench.driver.build_driver import build

    build()
    importlib.invalidate_caches()
