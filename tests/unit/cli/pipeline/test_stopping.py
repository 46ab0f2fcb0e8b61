"""The wish to stop of a command, also in a process with many open descriptors."""

from __future__ import annotations

import os
import signal

import pytest

from rocketpy.cli.pipeline.stopping import stopped_by_signals
from tests.support.descriptors import high_descriptors


@pytest.mark.parametrize("seconds", [60.0, 1e12])
def test_a_signal_ends_a_pause_also_with_many_descriptors(seconds: float) -> None:
    """Fault: Archives that go on, and pipelines, ended with an error in a process with a thousand open descriptors."""
    with high_descriptors(), stopped_by_signals() as stop:
        assert not stop.wait(0.0)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(seconds)
