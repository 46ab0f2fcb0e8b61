from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.admin import Mqadmin


@pytest.fixture
def mqadmin(capsys: pytest.CaptureFixture[str]) -> Mqadmin:
    return Mqadmin(capsys)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let SIGINT interrupt, also where the shell ignores it: in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
