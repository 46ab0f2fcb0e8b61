"""The text of codes 26 and 319, run-time changes, and the declarations themselves."""

import re
from pathlib import Path

import pytest

from rocketpy.config import (
    BrokerSettings,
    Machine,
    MessageStoreConfig,
    NamesrvSettings,
    load_broker_config,
    load_namesrv_config,
    properties,
)
from rocketpy.config.setting import Effect, evolved
from rocketpy.config.settings import known_settings
from rocketpy.errors import ConfigError, RequestRefused

ENVIRON = {"HOME": "/home/mq"}
MACHINE = Machine(2, "host-a", lambda: "10.1.2.3")
DOCS = Path(__file__).parents[3] / "docs"


@pytest.fixture
def broker() -> BrokerSettings:
    return load_broker_config(None, {"namesrvAddr": "a:1"}, ENVIRON, machine=MACHINE)


@pytest.fixture
def namesrv() -> NamesrvSettings:
    return load_namesrv_config(None, None, ENVIRON, machine=MACHINE)


def snake(key: str) -> str:
    """The rule of attribute names: words of the Java key, acronyms as one word."""
    key = re.sub("[dD](Led?ger)", lambda found: found[0].capitalize(), key).replace(".", "_")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


def test_attributes_are_java_keys_in_snake_case(broker: BrokerSettings, namesrv: NamesrvSettings) -> None:
    for settings in (broker, namesrv):
        for key, found in known_settings(settings).items():
            for _, declared in found:
                assert declared.attribute == snake(key)


def test_every_declaration_says_something(broker: BrokerSettings, namesrv: NamesrvSettings) -> None:
    for settings in (broker, namesrv):
        for key, found in known_settings(settings).items():
            for _, declared in found:
                assert declared.setting.doc.endswith((".", ".)")), key
                assert not (declared.setting.ignored and declared.setting.only_default), key


def test_properties_text_is_read_back_to_the_same_settings(broker: BrokerSettings, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(broker.to_properties())
    again = load_broker_config(path, None, {}, machine=MACHINE)
    assert again.to_properties() == broker.to_properties()
    assert (again.broker, again.store, again.server) == (broker.broker, broker.store, broker.server)


def test_important_properties_are_a_part(broker: BrokerSettings) -> None:
    important = properties.as_mapping(broker.to_properties(important_only=True))
    everything = properties.as_mapping(broker.to_properties())
    assert important.items() < everything.items()
    assert important["brokerName"] == "host-a"
    assert "haMasterAddress" not in everything  # null is left out


def test_settings_of_one_class_evolve() -> None:
    before = MessageStoreConfig()
    after = evolved(before, {"fileReservedTime": "48", "deleteWhen": "05", "brokerName": "of another class"})
    assert (after.file_reserved_time, after.delete_when) == (48, "05")
    assert evolved(after, {"fileReservedTime": "72", "deleteWhen": "04"}) == before
    with pytest.raises(ValueError, match="whole number"):
        evolved(before, {"fileReservedTime": "3d"})


def test_a_change_at_once_and_one_at_restart(broker: BrokerSettings) -> None:
    update = broker.updated({"brokerPermission": "4", "listenPort": "20911"})
    assert update.settings.broker.broker_permission == 4
    assert update.settings.server.listen_port == 10911
    assert (update.at_once, update.at_restart) == (("brokerPermission",), ("listenPort",))
    assert update.changes == {"brokerPermission": "4", "listenPort": "20911"}
    assert broker.broker.broker_permission == 6


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "flushDiskType", "brokerRole"])
def test_changes_that_are_refused(broker: BrokerSettings, key: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        broker.updated({key: "SYNC_FLUSH"})
    assert caught.value.response_code == 16


def test_the_black_list_can_be_longer(broker: BrokerSettings) -> None:
    longer = load_broker_config(None, {"configBlackList": "traceOn; regionId"}, ENVIRON, machine=MACHINE)
    for key in ("traceOn", "regionId", "rocketmqHome"):
        with pytest.raises(RequestRefused, match="black list"):
            longer.updated({key: "true"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"brokerPermision": "4"}, "did you mean brokerPermission"),
        ({"brokerPermission": "four"}, "'four' is not allowed"),
        ({"brokerPermission": "5"}, "is none of"),
        ({"maxMessageSize": "2000000000"}, "cannot hold the largest message"),
    ],
)
def test_bad_changes_change_nothing(broker: BrokerSettings, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker.updated(changes)


def test_name_server_changes(namesrv: NamesrvSettings) -> None:
    assert namesrv.updated({"orderMessageEnable": "true"}).settings.namesrv.order_message_enable
    for key in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"):
        with pytest.raises(RequestRefused, match=r"Can not update config in black list\."):
            namesrv.updated({key: "x"})


def test_refused_at_run_time_is_declared_where_it_must_be(broker: BrokerSettings) -> None:
    refused = {
        key
        for key, found in known_settings(broker).items()
        if any(declared.setting.effect is Effect.REFUSED for _, declared in found)
    }
    assert refused == {"rocketmqHome", "configBlackList", "flushDiskType", "brokerRole"}
