"""What the tests of rocketpy.spark need; without it they are skipped, and under CI they fail."""

from __future__ import annotations

import os

import pytest

if os.environ.get("CI") != "true":
    pytest.importorskip("pyarrow", reason="the extra is missing: make test-spark installs it")
