"""A name server without sockets."""

from pathlib import Path

import pytest

from tests.support.name_server import Asker


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)
