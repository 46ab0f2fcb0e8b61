"""The properties of automatic failover: what belongs together, and one clear line where it does not."""

from __future__ import annotations

import pytest

from rocketpy.config import BrokerRole, BrokerSettings, load_broker_config
from rocketpy.errors import ConfigError

MEMBER = {
    "haMode": "automatic",
    "haEtcdAddresses": "http://10.0.0.1:2379, https://[::1]:2379/",
    "haMember": "a",
    "haMembers": "a, b",
    "brokerRole": "SYNC_MASTER",
    "brokerId": "1",
}


def load(**changes: str) -> BrokerSettings:
    return load_broker_config(None, MEMBER | changes, {"HOME": "/nowhere"})


def test_a_member_of_a_group() -> None:
    store = load().store
    assert store.is_automatic and store.ha_lease_seconds == 6 and store.ha_serve_without_lease
    assert store.etcd_addresses == ("http://10.0.0.1:2379", "https://[::1]:2379")
    assert store.member_names == ("a", "b")


def test_a_group_on_one_machine_needs_no_secret() -> None:
    assert load(haAddresses="127.0.0.0/8, ::1,").store.is_automatic
    assert load(haAddresses="10.0.0.0/24", haSecretFile="/a/secret").store.is_automatic


def test_plain_is_the_default() -> None:
    assert not load_broker_config(None, {}, {"HOME": "/nowhere"}).store.is_automatic


def test_a_minimum_of_members_in_sync_is_for_groups() -> None:
    with pytest.raises(ConfigError, match="minInSyncReplicas: is for haMode=automatic"):
        load_broker_config(None, {"minInSyncReplicas": "2"}, {"HOME": "/nowhere"})
    assert load(minInSyncReplicas="2").store.min_in_sync_replicas == 2


def test_the_process_tree_of_a_role() -> None:
    settings = load()
    assert settings.in_role(is_master=True) == settings
    slave = settings.in_role(is_master=False)
    assert slave.is_slave and not slave.is_sync_master and slave.broker == settings.broker
    assert slave.store.broker_role is BrokerRole.SLAVE and slave.store.is_automatic


@pytest.mark.parametrize(
    ("changes", "key", "why"),
    [
        ({"haMode": "manual"}, "haMode", "plain or automatic"),
        ({"brokerRole": "SLAVE"}, "brokerRole", "give SYNC_MASTER or ASYNC_MASTER"),
        ({"brokerId": "0"}, "brokerId", "give each member its own"),
        ({"haMasterAddress": "h:10912"}, "haMasterAddress", "remove it"),
        ({"haMember": ""}, "haMember", "'' must be 1 to 64 letters"),
        ({"haMember": "a b"}, "haMember", "'a b' must be 1 to 64 letters"),
        ({"haMembers": "a," + "b" * 65}, "haMembers", "must be 1 to 64 letters"),
        ({"haMembers": ""}, "haMembers", "1 to 16 different names"),
        ({"haMembers": "a,b,a"}, "haMembers", "1 to 16 different names"),
        ({"haMembers": ",".join("abcdefghijklmnopq")}, "haMembers", "1 to 16 different names"),
        ({"haMembers": "b,c"}, "haMember", "a is not in haMembers=b,c"),
        ({"haEtcdAddresses": ""}, "haEtcdAddresses", "is missing"),
        ({"haEtcdAddresses": "10.0.0.1:2379"}, "haEtcdAddresses", "is not http://HOST:PORT"),
        ({"haEtcdAddresses": "http://h"}, "haEtcdAddresses", "is not http://HOST:PORT"),
        ({"haEtcdAddresses": "http://h:99999"}, "haEtcdAddresses", "is not http://HOST:PORT"),
        ({"haEtcdAddresses": "http://u:p@h:2379"}, "haEtcdAddresses", "is not http://HOST:PORT"),
        ({"haEtcdAddresses": "http://h:2379/v3"}, "haEtcdAddresses", "is not http://HOST:PORT"),
        ({"haEtcdUser": "broker"}, "haEtcdUser", "together"),
        ({"haEtcdCertFile": "/c"}, "haEtcdCertFile", "together"),
        ({"haEtcdCaFile": "/c"}, "haEtcdAddresses", "https://"),
        ({"haAddresses": "127.0.0.1,10.0.0.0/24"}, "haSecretFile", "members must prove who they are"),
        ({"haLeaseSeconds": "1"}, "haLeaseSeconds", "from 2 to 600"),
        ({"haMaxTimeSlaveNotCatchup": "0"}, "haMaxTimeSlaveNotCatchup", "from 100"),
        ({"minInSyncReplicas": "3"}, "minInSyncReplicas", "haMembers has 2: nobody could send"),
        ({"minInSyncReplicas": "0"}, "minInSyncReplicas", "from 1 to 16"),
        ({"haMode": "plain", "brokerId": "0"}, "haEtcdAddresses", "is for haMode=automatic"),
        ({"haMode": "plain", "brokerId": "0", "haEtcdAddresses": ""}, "haMember", "is for haMode=automatic"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, str], key: str, why: str) -> None:
    """Fault: Without haSecretFile, anybody on the HA port could acknowledge in the name of a member."""
    with pytest.raises(ConfigError, match=why) as caught:
        load(**changes)
    assert caught.value.key == key


HOSTS = {
    "haAddresses": "10.0.0.0/24",
    "haSecretFile": "/a/secret",
    "brokerIP1": "10.0.0.1",
    "bindAddress": "10.0.0.1",
    "adminAddresses": "10.0.0.0/24",
}


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"bindAddress": "0.0.0.0"}, []),
        ({"bindAddress": "127.0.0.1"}, ["bindAddress"]),
        ({"brokerIP1": "127.0.0.1"}, ["brokerIP1"]),
        ({"brokerIP2": "::1"}, ["brokerIP2"]),
        ({"bindAddress": "::1", "brokerIP1": "127.0.0.1"}, ["bindAddress", "brokerIP1"]),
        ({"haAddresses": "127.0.0.0/8, ::1"}, ["haAddresses"]),
        (
            {"haAddresses": "127.0.0.0/8", "haEtcdAddresses": "http://localhost:2379", "bindAddress": "127.0.0.1"},
            [],
        ),
    ],
)
def test_an_address_that_other_members_cannot_reach_is_noted(changes: dict[str, str], keys: list[str]) -> None:
    """Fault: A member set up as documented listened on 127.0.0.1."""
    notes = load(**HOSTS | changes).notes
    assert [note.key for note in notes] == keys
    assert all("other hosts" in note.text or "give the address of this host" in note.text for note in notes)
