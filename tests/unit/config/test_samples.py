"""The sample configurations that are shipped load as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rocketpy.config import load_broker_config, load_namesrv_config

DEPLOY = Path(__file__).parents[3] / "deploy"


def test_the_sample_broker_configuration_loads_without_a_note() -> None:
    settings = load_broker_config(DEPLOY / "broker.conf")
    assert settings.broker_addr == "127.0.0.1:10911"
    assert settings.notes == ()


def test_the_sample_name_server_configuration_loads_without_a_note() -> None:
    settings = load_namesrv_config(DEPLOY / "namesrv.conf")
    assert settings.server.listen_port == 9876
    assert settings.notes == ()


@pytest.mark.parametrize("name", ["broker.conf", "namesrv.conf"])
def test_settings_that_are_commented_out_exist(name: str) -> None:
    reference = (DEPLOY.parent / "docs" / "run" / "configuration.md").read_text(encoding="utf-8")
    keys = re.findall(r"^# ([a-z]\w+) = ", (DEPLOY / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert len(keys) >= 3 and [key for key in keys if f"`{key}`" not in reference] == []
