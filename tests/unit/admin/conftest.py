from __future__ import annotations

import pytest

from tests.support.admin import Mqadmin


@pytest.fixture
def mqadmin(capsys: pytest.CaptureFixture[str]) -> Mqadmin:
    return Mqadmin(capsys)
