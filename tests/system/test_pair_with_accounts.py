"""A name server, a master and a slave with access control everywhere; slaves without the brokers' account."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.client import Message
from rocketpy.client.sync import Producer, PullConsumer
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fastjson import loads
from tests.interop.own_brokers import running_slave, wait_equal_logs
from tests.support.accounts import (
    BROKER,
    producer_options,
    pull_options,
    signed,
    write_accounts,
    write_credentials,
)
from tests.support.broker import RunningBroker, running_broker
from tests.support.pair import LoneBroker, log_files
from tests.support.waiting import wait_until
from tests.support.wire import Wire
from tests.system.test_own_pair import ROLE, SMALL

TOPIC, GROUP = "Replicated", "readers"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[RunningBroker]:
    """A name server and a master beside it."""
    settings = SMALL | write_accounts(tmp_path) | write_credentials(tmp_path)
    with running_broker(settings, store=tmp_path / "store") as broker:
        yield broker


def send(master: RunningBroker, *bodies: bytes) -> None:
    with Producer("p", producer_options(master.namesrv)) as producer:
        for body in bodies:
            producer.send(Message(TOPIC, body))


def read(namesrv: str) -> list[bytes]:
    with PullConsumer(GROUP, pull_options(namesrv)) as consumer:
        consumer.subscribe(TOPIC)
        found = [message.body for message in consumer.poll(timeout=30)]
        consumer.commit()
        return found


def offsets(broker: RunningBroker) -> dict[str, object]:
    with Wire.open(broker.port) as wire:
        answer = wire.ask(signed(RemotingCommand.request(RequestCode.GET_ALL_CONSUMER_OFFSET), BROKER))
        found = loads(answer.body or b"")
        assert isinstance(found, dict)
        return dict(found["offsetTable"])


def is_registered(master: RunningBroker, address: str) -> bool:
    with Wire.open(master.namesrv_port) as wire:
        answer = wire.ask(signed(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)))
        return address.encode() in (answer.body or b"")


def test_a_slave_copies_log_and_tables_with_the_brokers_account(master: RunningBroker, tmp_path: Path) -> None:
    """Holds: trap, slaves have no credentials."""
    send(master, b"first")
    assert read(master.namesrv) == [b"first"]
    with running_slave(master, tmp_path / "slave", ROLE | {"brokerId": "1"}) as slave:
        wait_equal_logs(master.store, slave.store)
        wait_until(lambda: is_registered(master, slave.address), "the registration of the slave")
        key = f"{TOPIC}@{GROUP}"
        wait_until(lambda: offsets(slave).get(key) == offsets(master)[key] is not None, "the copied offsets")
        send(master, b"second")
        wait_equal_logs(master.store, slave.store)
        assert slave.stop() == 0
    assert "access control refused" not in master.text()


@pytest.mark.parametrize("account", ["none", "wrong", "client"])
def test_a_slave_without_the_brokers_account_gets_no_byte(master: RunningBroker, tmp_path: Path, account: str) -> None:
    """It says why, and its registration is refused as well."""
    send(master, b"private")
    given = {
        "none": {"aclCredentialsFile": ""},
        "wrong": write_credentials(tmp_path, BROKER, "wrong-secret"),
        "client": write_credentials(tmp_path, "nobody-1"),
    }[account]
    reason = {
        "none": "No accessKey is configured",
        "wrong": f"Check signature failed for accessKey={BROKER}",
        "client": "No acl config for nobody-1",
    }[account]
    others = ROLE | {"brokerId": "1", "haMasterAddress": f"127.0.0.1:{master.port + 1}"} | given
    with running_slave(master, tmp_path / "slave", others) as slave:
        wait_until(lambda: follows_not(slave, reason), "the refusal in the log of the slave")
        assert not log_files(slave.store)
        assert not is_registered(master, slave.address)
    assert "wrong-secret" not in master.text() + slave.text().replace("broker-a-wrong-secret.yml", "")


def follows_not(slave: LoneBroker, reason: str) -> bool:
    return any("does not tell where its log begins" in line and reason in line for line in slave.text().splitlines())


@pytest.mark.long
def test_a_changed_secret_needs_no_restart(master: RunningBroker, tmp_path: Path) -> None:
    """Accounts and credentials are changed one after the other; a slave that was refused meanwhile goes on."""
    with running_slave(master, tmp_path / "slave", ROLE | {"brokerId": "1"}) as slave:
        send(master, b"before")
        wait_equal_logs(master.store, slave.store)
        text = (tmp_path / "conf" / "plain_acl.yml").read_text()
        write_accounts(
            tmp_path, text.replace(f"accessKey: {BROKER}, secretKey: ", f"accessKey: {BROKER}, secretKey: x")
        )
        wait_until(lambda: f"Check signature failed for accessKey={BROKER}" in master.text(), "a refusal")
        path = Path(master.settings["aclCredentialsFile"])
        path.write_text(path.read_text().replace("secretKey: ", "secretKey: x"))
        slave.kill_worker("replicator")
        send(master, b"after")
        wait_equal_logs(master.store, slave.store)


def test_a_name_server_beside_a_broker_without_an_account_says_that_it_is_open(tmp_path: Path) -> None:
    with running_broker(SMALL | write_accounts(tmp_path)) as broker:
        assert "aclEnable: the name server beside the broker serves everybody: give aclCredentialsFile" in broker.text()
        with Wire.open(broker.namesrv_port) as wire:
            assert wire.ask(RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
