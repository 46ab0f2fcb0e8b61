"""The text of codes 26 and 319, run-time changes, and the declarations themselves."""

import re
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from rocketpy.config import (
    BrokerSettings,
    Machine,
    MessageStoreConfig,
    NamesrvSettings,
    TlsConfig,
    load_broker_config,
    load_namesrv_config,
    properties,
    reference,
    update_broker,
    update_namesrv,
    without_effect,
)
from rocketpy.config.setting import Effect, declared_settings, to_text, with_changes
from rocketpy.config.settings import known_settings
from rocketpy.config.update import change_file
from rocketpy.config.without_effect import attribute_of
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
            for part, declared in found:
                assert declared.attribute == (attribute_of(key) if part == "without_effect" else snake(key))


def test_every_declaration_says_something(broker: BrokerSettings, namesrv: NamesrvSettings) -> None:
    for settings in (broker, namesrv):
        for key, found in known_settings(settings).items():
            for _, declared in found:
                assert declared.setting.doc.endswith((".", ".)")), key
                assert not (declared.setting.ignored and declared.setting.only_default), key


def test_what_has_no_effect_is_declared_once_and_says_why(broker: BrokerSettings, namesrv: NamesrvSettings) -> None:
    tables = (without_effect.SERVER, without_effect.BROKER, without_effect.STORE, without_effect.CLIENT)
    for settings, of_server in ((broker, tables), (namesrv, (without_effect.SERVER, without_effect.NAMESRV))):
        known = known_settings(settings)
        keys = [key for key, _, _ in without_effect.rows(*of_server)]
        assert len(keys) == len(set(keys)) and all(len(known[key]) == 1 for key in keys)
        for key, reason, default in without_effect.rows(*of_server):
            ((_, declared),) = known[key]
            assert declared.setting.ignored == reason and declared.default == default, key
            shown = properties.as_mapping(settings.to_properties())
            expected = "2" if key == "clientCallbackExecutorThreads" else to_text(default)  # MACHINE's CPUs
            assert shown.get("isEnableBatchPush" if key == "enableBatchPush" else key) == expected
    assert {key for key, _, _ in without_effect.rows(*tables)} > without_effect.IMPORTANT


def test_what_has_no_effect_can_be_changed_and_is_shown(broker: BrokerSettings) -> None:
    update = update_broker(broker, {"waitTimeMillsInTransactionQueue": "7000", "traceOn": "false"})
    assert update.without_effect == ("waitTimeMillsInTransactionQueue",)
    assert (update.at_once, update.at_restart) == ((), ("traceOn",))
    assert "waitTimeMillsInTransactionQueue=7000" in update.settings.to_properties().splitlines()
    assert "transactionTimeOut=6000" in broker.to_properties(important_only=True).splitlines()


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("transactionTimeOut", "soon", "a whole number from 0"),
        ("transactionTimeOut", "-1", "a whole number from 0"),
        ("debugLockEnable", "yes", "true or false"),
    ],
)
def test_what_has_no_effect_is_still_checked_for_its_type(
    broker: BrokerSettings, key: str, text: str, allowed: str
) -> None:
    with pytest.raises(ConfigError, match=f"{key}: '{text}' is not allowed; it must be {allowed}"):
        update_broker(broker, {key: text})


def test_properties_text_is_read_back_to_the_same_settings(broker: BrokerSettings, tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(broker.to_properties())
    again = load_broker_config(path, None, {}, machine=MACHINE)
    assert again.to_properties() == broker.to_properties()
    assert (again.broker, again.store, again.server) == (broker.broker, broker.store, broker.server)


def test_what_takes_effect_at_the_next_start_is_shown_and_checked_with_later_changes(namesrv: NamesrvSettings) -> None:
    """Fault: getNamesrvConfig and getBrokerConfig showed the old value after an update that takes effect at restart."""
    first = update_namesrv(namesrv, {"listenPort": "29876"}).settings
    assert first.server == namesrv.server, "a running server keeps its port"
    second = update_namesrv(first, {"orderMessageEnable": "true", "serverWorkerThreads": "3"}).settings
    shown = properties.as_mapping(second.to_properties())
    assert (shown["listenPort"], shown["serverWorkerThreads"], shown["orderMessageEnable"]) == ("29876", "3", "true")
    back = update_namesrv(second, {"listenPort": "9876"}).settings
    assert properties.as_mapping(back.to_properties())["listenPort"] == "9876"


def test_a_change_must_fit_the_running_server_and_its_next_start(broker: BrokerSettings) -> None:
    larger = {"mappedFileSizeCommitLog": str(1 << 30)}
    smaller = update_broker(broker, {"mappedFileSizeCommitLog": str(8 << 20)}).settings
    with pytest.raises(ConfigError, match=r"maxMessageSize|mappedFileSizeCommitLog"):
        update_broker(smaller, {"maxMessageSize": str(16_000_000)})
    assert update_broker(update_broker(smaller, larger).settings, {"maxMessageSize": str(16_000_000)})


def test_a_key_that_the_reference_reads_and_shows_under_two_names(broker: BrokerSettings, tmp_path: Path) -> None:
    """Fault: getBrokerConfig showed `isEnableBatchPush` of the reference as `enableBatchPush`."""
    shown = properties.as_mapping(broker.to_properties())
    assert shown["isEnableBatchPush"] == "false" and "enableBatchPush" not in shown
    path = tmp_path / "broker.conf"
    for key in ("enableBatchPush", "isEnableBatchPush"):
        path.write_text(f"{key}=true\n")
        settings = load_broker_config(path, None, ENVIRON, machine=MACHINE)
        assert "isEnableBatchPush=true" in settings.to_properties().splitlines()
        assert "isEnableBatchPush=true" in update_broker(broker, {key: "true"}).settings.to_properties().splitlines()


def test_important_properties_are_a_part(broker: BrokerSettings) -> None:
    important = properties.as_mapping(broker.to_properties(important_only=True))
    everything = properties.as_mapping(broker.to_properties())
    assert important.items() < everything.items()
    assert important["brokerName"] == "host-a"
    assert "haMasterAddress" not in everything  # null is left out


def test_settings_of_one_class_evolve() -> None:
    before = MessageStoreConfig()
    after = with_changes(before, {"fileReservedTime": "48", "deleteWhen": "05", "brokerName": "of another class"})
    assert (after.file_reserved_time, after.delete_when) == (48, "05")
    assert with_changes(after, {"fileReservedTime": "72", "deleteWhen": "04"}) == before
    with pytest.raises(ValueError, match="whole number"):
        with_changes(before, {"fileReservedTime": "3d"})


def test_a_change_at_once_and_one_at_restart(broker: BrokerSettings) -> None:
    update = update_broker(broker, {"brokerPermission": "4", "listenPort": "20911"})
    assert update.settings.broker.broker_permission == 4
    assert update.settings.server.listen_port == 10911
    assert (update.at_once, update.at_restart) == (("brokerPermission",), ("listenPort",))
    assert update.changes == {"brokerPermission": "4", "listenPort": "20911"}
    assert broker.broker.broker_permission == 6


@pytest.mark.parametrize("key", ["brokerConfigPath", "rocketmqHome", "configBlackList", "flushDiskType", "brokerRole"])
def test_changes_that_are_refused(broker: BrokerSettings, key: str) -> None:
    """Holds: trap, updateBrokerConfig takes anything."""
    with pytest.raises(RequestRefused) as caught:
        update_broker(broker, {key: "SYNC_FLUSH"})
    assert caught.value.response_code == 16


def test_the_black_list_can_be_longer(broker: BrokerSettings) -> None:
    longer = load_broker_config(None, {"configBlackList": "traceOn; regionId"}, ENVIRON, machine=MACHINE)
    for key in ("traceOn", "regionId", "rocketmqHome"):
        with pytest.raises(RequestRefused, match="black list"):
            update_broker(longer, {key: "true"})


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
        update_broker(broker, changes)


def test_name_server_changes(namesrv: NamesrvSettings) -> None:
    assert update_namesrv(namesrv, {"orderMessageEnable": "true"}).settings.namesrv.order_message_enable
    for key in ("kvConfigPath", "configStorePath", "configBlackList", "rocketmqHome"):
        with pytest.raises(RequestRefused, match=r"Can not update config in black list\."):
            update_namesrv(namesrv, {key: "x"})


def test_refused_at_run_time_is_declared_where_it_must_be(broker: BrokerSettings) -> None:
    refused = {
        key
        for key, found in known_settings(broker).items()
        if any(declared.setting.effect is Effect.REFUSED for _, declared in found)
    }
    of_tls = {declared.setting.key for declared in declared_settings(TlsConfig)}
    own = {"rocketmqHome", "configBlackList", "flushDiskType", "brokerRole", "aclCredentialsFile"}
    assert refused == own | of_tls


@pytest.mark.parametrize("black_listed", ["enableBatchPush", "isEnableBatchPush"])
@pytest.mark.parametrize("given", ["enableBatchPush", "isEnableBatchPush"])
def test_a_black_list_means_a_setting_under_each_of_its_names(given: str, black_listed: str, tmp_path: Path) -> None:
    """Fault: A black list of one name of a setting let its other name pass."""
    settings = load_broker_config(None, {"configBlackList": black_listed}, {"HOME": str(tmp_path)}, machine=MACHINE)
    with pytest.raises(RequestRefused):
        update_broker(settings, {given: "true"})


@pytest.mark.parametrize("given", ["enableBatchPush", "isEnableBatchPush"])
def test_a_changed_setting_stands_once_in_the_file_whatever_its_name_was(given: str, tmp_path: Path) -> None:
    """Else the next start would read the old value from the line below.
    Fault: After an update of a setting with two names, the next start could read the old value."""
    path = tmp_path / "broker.conf"
    path.write_text("enableBatchPush=false\nbrokerName=b\nisEnableBatchPush=false\n")
    settings = load_broker_config(path, {}, {"HOME": str(tmp_path)}, machine=MACHINE)
    change_file(path, update_broker(settings, {given: "true"}).changes)
    assert [line for line in path.read_text().splitlines() if line] == ["brokerName=b", "enableBatchPush=true"]


def test_the_trace_topic_has_the_name_of_older_documents_too(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("namesrvAddr=a:1\nautoTraceBrokerEnable=true\n")
    settings = load_broker_config(path, None, ENVIRON, machine=MACHINE)
    assert settings.broker.trace_topic_enable
    assert "traceTopicEnable=true" in settings.to_properties().splitlines()


def test_the_reference_page_shows_unit_effect_and_reason() -> None:
    lines = reference.page().splitlines()
    starts = (
        "- `slowSendAgeMaxMillis`=`3000` ms `live`: Age at which",
        "- `flushDiskType`★=`ASYNC_FLUSH` `refused`: ASYNC_FLUSH answers",
        "- `groupsMax`=`100000` `live`: Most subscription groups",
        "- `haListenPort`: Port that slaves dial. Default: listenPort + 1. **Not honoured:** always listenPort + 1",
        "- `useTLS` `refused`: Call name servers",
        "- `adminAddresses`: Addresses and networks",
        "- `useEpollNativeSelector`: epoll is always used",
    )
    assert [start for start in starts if not any(line.startswith(start) for line in lines)] == []


def settings_of(*, acl: bool, **limits: int) -> BrokerSettings:
    settings = BrokerSettings()
    return attrs.evolve(
        settings,
        broker=attrs.evolve(settings.broker, acl_enable=acl),
        rocketpy=attrs.evolve(settings.rocketpy, **limits),
    )


@pytest.mark.parametrize(
    ("acl", "limits", "is_limited"),
    [
        (False, {}, False),
        (False, {"failed_authentications_max": 5}, False),
        (False, {"address_bytes_per_second": 5}, True),
        (True, {}, True),  # failedAuthenticationsMax has a default
        (True, {"failed_authentications_max": 0}, False),
        (True, {"failed_authentications_max": 0, "account_requests_per_second": 5}, True),
    ],
)
def test_limits_of_accounts_need_access_control(acl: bool, limits: Mapping[str, int], is_limited: bool) -> None:
    assert any(settings_of(acl=acl, **limits).limits.values()) is is_limited


def test_a_limit_of_accounts_without_accounts_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs aclEnable=true"):
        load_broker_config(None, {"accountBytesPerSecond": "5"}, ENVIRON, machine=MACHINE)
