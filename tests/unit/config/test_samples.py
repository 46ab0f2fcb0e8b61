"""The sample configurations that are shipped load as they stand."""

from __future__ import annotations

from pathlib import Path

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
