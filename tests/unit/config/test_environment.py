"""Properties in environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.config import BrokerSettings, NamesrvSettings, load_broker_config, load_namesrv_config
from rocketpy.config.environment import from_environment, variable_of
from rocketpy.config.settings import known_settings
from rocketpy.errors import ConfigError


@pytest.mark.parametrize("settings", [BrokerSettings(), NamesrvSettings()], ids=["broker", "name server"])
def test_each_property_has_a_variable_of_its_own(settings: BrokerSettings | NamesrvSettings) -> None:
    known = known_settings(settings)
    variables = {variable_of(key) for key in known}
    assert len(variables) == len(known) > 20
    assert all(name.replace("_", "").isalnum() and name == name.upper() for name in variables)
    assert from_environment({variable_of(key): key for key in known}, known) == {key: key for key in known}


@pytest.mark.parametrize(
    ("key", "variable"),
    [
        ("listenPort", "ROCKETPY_LISTEN_PORT"),
        ("brokerIP1", "ROCKETPY_BROKER_IP1"),
        ("haUseTLS", "ROCKETPY_HA_USE_TLS"),
        ("enableDLegerCommitLog", "ROCKETPY_ENABLE_D_LEGER_COMMIT_LOG"),
        ("tls.server.mode", "ROCKETPY_TLS_SERVER_MODE"),
    ],
)
def test_names(key: str, variable: str) -> None:
    assert variable_of(key) == variable


def test_a_variable_is_stronger_than_the_file_and_weaker_than_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName=of-the-file\nbrokerClusterName=of-the-file\nlistenPort=10\n")
    environ = {"HOME": str(tmp_path), "ROCKETPY_BROKER_NAME": " of-the-variable ", "ROCKETPY_LISTEN_PORT": "10921"}
    loaded = load_broker_config(file, {"listenPort": "10931"}, environ)
    named = (loaded.broker.broker_name, loaded.broker.broker_cluster_name, loaded.server.listen_port)
    assert named == ("of-the-variable", "of-the-file", 10931)
    assert load_namesrv_config(None, {}, {"HOME": "/", "ROCKETPY_LISTEN_PORT": "9878"}).server.listen_port == 9878


def test_a_misspelt_variable_is_an_error_and_others_are_not_ours(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"ROCKETPY_LISTENPORT: .*did you mean ROCKETPY_LISTEN_PORT\?"):
        load_broker_config(None, {}, {**home, "ROCKETPY_LISTENPORT": "1"})
    with pytest.raises(ConfigError, match="brokerId"):
        load_broker_config(None, {}, {**home, "ROCKETPY_BROKER_ID": "one"})
    load_broker_config(None, {}, {**home, "ROCKETPY_BUILD": "core", "ROCKETPY_PRELOADED": "1", "ROCKETPY_WERROR": "1"})
