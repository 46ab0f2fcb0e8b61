"""Decisions of a process after a reload, decisions for the fast path, and the files of accounts in the manager."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.acl.addresses import AddressPattern
from rocketpy.acl.files import AclFiles
from rocketpy.acl.permissions import PUB, SUB
from rocketpy.acl.resources import NAMED_IN_BODIES, STRICT
from rocketpy.acl.validator import AccessValidator, Reason, Refusal
from rocketpy.broker.access import DECISIONS_MAX, DECISIONS_S, AccessControl, AccountsKeeper
from rocketpy.codes import RequestCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from tests.support.accounts import signed as signed_by

HOST = "10.0.0.1"
OWN = Account("account-1", "secret-1", permissions={"T": PUB | SUB, "%RETRY%G": SUB})
FILE = "accounts:\n- {accessKey: account-1, secretKey: secret-1}\n"


@attrs.define(eq=False)
class Published:
    """Accounts that are not in shared memory."""

    version: int = 0
    accounts: Accounts = attrs.field(factory=Accounts)
    allowed: list[tuple[Any, ...]] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    reads: int = 0

    def publish(self, accounts: Accounts) -> None:
        self.accounts, self.version = accounts, self.version + 2

    def read(self) -> tuple[int, Accounts] | None:
        self.reads += 1
        return None if self.version % 2 else (self.version, self.accounts)

    def count(self, reason: Reason) -> None:
        self.counts[reason.value] += 1

    @property
    def refused(self) -> Mapping[str, int]:
        return self.counts

    def allow(self, version: int, code: int, access_key: str, topic: str, group: str) -> None:
        self.allowed.append((version, code, access_key, topic, group))


def control(*accounts: Account, strict: bool = True, white: str = "") -> tuple[Published, AccessControl]:
    published = Published()
    published.publish(Accounts.of(accounts, [AddressPattern.of(white)] if white else []))
    return published, AccessControl.of(published, strict=strict, brokers=" broker-key,")


def signed(code: int, account: Account = OWN, **fields: str) -> RemotingCommand:
    request = RemotingCommand.request(code, ext_fields=dict(fields))
    return signed_by(request, account.access_key, account.secret_key)


def send(topic: str = "T", group: str = "PG") -> RemotingCommand:
    return signed(RequestCode.SEND_MESSAGE_V2, b=topic, a=group)


def test_the_request_after_a_publication_is_decided_by_it() -> None:
    published, access = control(OWN)
    access.check(send(), HOST)
    access.check(send(), HOST)
    assert published.reads == 1
    published.publish(Accounts())
    with pytest.raises(RequestRefused, match="No acl config for account-1"):
        access.check(send(), HOST)
    assert published.refused == {"unknown_access_key": 1}


def test_a_second_check_of_a_request_is_free_for_its_account() -> None:
    """A request that waited is checked again when the version has changed, and was charged at its first check."""
    published, access = control(OWN)
    limits = access.limits = PlayedLimits()
    before = access.version
    access.check(send(), HOST)
    assert access.version == before
    published.publish(Accounts.of([OWN]))
    assert access.version != before
    access.check(send(), HOST, is_counted=True)
    assert limits.taken == ["account-1"]


def test_accounts_that_are_being_replaced_stay_until_they_are_whole() -> None:
    published, access = control(OWN)
    access.check(send(), HOST)
    published.version += 1
    access.check(send(), HOST)
    published.version -= 1
    published.publish(Accounts())
    with pytest.raises(RequestRefused):
        access.check(send(), HOST)


def test_a_process_that_begins_waits_for_accounts_that_are_being_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The first requests after a change of the role were refused as those of unknown accounts."""
    published, _ = control(OWN)
    published.version += 1
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            published.version += 1

    monkeypatch.setattr("rocketpy.broker.access.time.sleep", sleep)
    AccessControl.of(published, strict=True, brokers="").check(send(), HOST)
    assert len(waits) == 3


def test_an_allowed_send_or_pull_is_left_to_the_fast_path() -> None:
    published, access = control(OWN)
    access.check_fast(send(), HOST, "T", "PG")
    access.check_fast(signed(RequestCode.LITE_PULL_MESSAGE, topic="T", consumerGroup="G"), HOST, "T", "G")
    assert published.allowed == [(2, 310, "account-1", "T", "PG"), (2, 361, "account-1", "T", "G")]


def test_what_a_white_list_lets_pass_is_no_decision_about_the_account() -> None:
    """An account that may nothing would have what its white address may, from any address."""
    published, access = control(Account("account-1", "secret-1"), white=HOST)
    access.check_fast(send(), HOST, "T", "PG")
    own = Account("account-1", "secret-1", white_addresses=AddressPattern.of(HOST))
    published.publish(Accounts.of([own]))
    access.check_fast(send(), HOST, "T", "PG")
    assert published.allowed == []


@pytest.mark.parametrize("read", [("other", "PG"), ("T", "other"), ("", "PG")])
def test_a_request_that_is_read_in_two_ways_is_refused(read: tuple[str, str]) -> None:
    published, access = control(OWN)
    with pytest.raises(RequestRefused, match="ambiguous"):
        access.check_fast(send(), HOST, *read)
    assert published.allowed == []


def test_an_account_has_its_share_of_the_decisions() -> None:
    """Fault: A sender that made a new group up for each send pushed all decisions out of the fast path."""
    other = Account("account-2", "secret-2", permissions={"T": PUB})
    published, access = control(OWN, other)
    now_s = [100.0]
    access.now_s = lambda: now_s[0]

    def sends(account: Account, group: str) -> bool:
        request = signed(RequestCode.SEND_MESSAGE_V2, account, b="T", a=group)
        published.allowed.clear()
        access.check_fast(request, HOST, "T", group)
        return bool(published.allowed)

    assert all(sends(OWN, str(n)) for n in range(DECISIONS_MAX))
    assert not sends(OWN, "one more"), "but it is served"
    assert sends(other, "PG")
    now_s[0] += DECISIONS_S
    assert sends(OWN, "one more")


@attrs.define(eq=False)
class PlayedLimits:
    """Blocks an address at its second refusal, and refuses requests of more than `bytes_max`."""

    bytes_max: int = 1 << 20
    limits_accounts: bool = True
    failures: Counter[str] = attrs.field(factory=Counter)
    taken: list[str] = attrs.field(factory=list)

    def failed(self, host: str) -> bool:
        self.failures[host] += 1
        return self.failures[host] == 2

    def take(self, access_key: str, size: int) -> str | None:
        self.taken.append(access_key)
        return None if size <= self.bytes_max else "too much"


def test_refused_identities_count_for_their_address_and_a_block_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, access = control(OWN)
    limits = access.limits = PlayedLimits()
    for request in (
        RemotingCommand.request(310, ext_fields={}),
        signed(310, Account("nobody", "secret-1"), b="T"),
        signed(310, Account("account-1", "wrong"), b="T"),
    ):
        with pytest.raises(RequestRefused):
            access.check(request, HOST)
    assert limits.failures == {HOST: 3}
    assert caplog.text.count(f"failed authentications: {HOST} is blocked") == 1
    with pytest.raises(RequestRefused):
        access.check(send("other topic"), HOST)  # who it is was proved
    assert limits.failures == {HOST: 3}


def heartbeat(size: int, account: Account = OWN, group: str = "G") -> RemotingCommand:
    consumer = ConsumerData(
        group_name=group, subscription_data_set=[SubscriptionData(topic="T", sub_string="a" * size)]
    )
    body = HeartbeatData(client_id="c", consumer_data_set=[consumer]).encode()
    request = RemotingCommand.request(RequestCode.HEART_BEAT, ext_fields={}, body=body)
    return signed_by(request, account.access_key, account.secret_key)


def test_a_large_body_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision, the limits and the accounts are those of a small one."""
    published, access = control(OWN)

    def check_long(request: RemotingCommand) -> None:
        trio.run(access.check_long, request, HOST)

    limits = access.limits = PlayedLimits()
    threads: list[threading.Thread] = []
    check = AccessValidator.check

    def looked(self: AccessValidator, request: RemotingCommand, host: str) -> Refusal | None:
        threads.append(threading.current_thread())
        return check(self, request, host)

    monkeypatch.setattr(AccessValidator, "check", looked)
    assert not access.is_long(heartbeat(10)) and not access.is_long(signed(310, b="T", a="x" * 10_000))
    request = heartbeat(10_000)
    assert access.is_long(request)
    check_long(request)
    assert limits.taken == ["account-1"]
    with pytest.raises(RequestRefused, match="group"):
        check_long(heartbeat(10_000, group="other"))
    published.publish(Accounts.of([Account("account-1", "another")]))
    with pytest.raises(RequestRefused, match="signature"):
        check_long(request)
    assert limits.failures == {HOST: 1}
    assert len(threads) == 3 and threading.current_thread() not in threads


def test_the_codes_whose_bodies_are_read() -> None:
    for code, rule in STRICT.items():
        request = RemotingCommand.request(code, ext_fields={})
        for source in rule.sources:
            source.fill(request, "T", "G")
        assert (request.body is not None) == (code in NAMED_IN_BODIES), code


def test_what_is_no_request_counts_for_its_address_unless_it_is_white() -> None:
    published, access = control(OWN, white="10.0.0.2")
    access.distrust(HOST)  # nothing is limited
    limits = access.limits = PlayedLimits()
    access.distrust(HOST)
    access.distrust("10.0.0.2")
    assert limits.failures == {HOST: 1}
    assert published.refused == {"malformed": 2}


def test_a_request_beyond_the_limit_of_its_account_is_refused_after_it_was_proved() -> None:
    published, access = control(OWN)
    limits = access.limits = PlayedLimits()
    access.check(send(), HOST)
    limits.bytes_max = 0
    with pytest.raises(RequestRefused, match="too much") as refused:
        access.check_fast(send(), HOST, "T", "PG")
    assert refused.value.response_code == 2
    assert published.allowed == [] and published.refused == {}
    access.check_fast(send(), HOST, "T", "PG", is_counted=True)
    assert len(published.allowed) == 1
    with pytest.raises(RequestRefused):
        access.check(signed(310, Account("account-1", "wrong"), b="T"), HOST)
    assert limits.taken == ["account-1"] * 2, "another may not spend what is the account's"


def test_a_request_that_its_account_may_not_make_is_counted_too() -> None:
    """Fault: An account could send any number of requests that Python verified and refused."""
    published, access = control(OWN)
    limits = access.limits = PlayedLimits()
    for request in (send("other topic"), signed(RequestCode.UPDATE_BROKER_CONFIG)):
        with pytest.raises(RequestRefused):
            access.check(request, HOST)
    assert limits.taken == ["account-1"] * 2
    limits.bytes_max = 0
    with pytest.raises(RequestRefused, match="too much"):
        access.check(send("other topic"), HOST)
    assert published.refused == {"resource": 1, "role": 1}


def test_an_account_of_brokers_has_no_limit() -> None:
    """They pass on sends that another member has counted."""
    broker = Account("broker-key", "secret-2", default_topic_permission=PUB)
    _, access = control(broker)
    limits = access.limits = PlayedLimits(bytes_max=0)
    access.check(signed(RequestCode.SEND_MESSAGE_V2, broker, b="T", a="PG"), HOST)
    assert limits.taken == []


def test_what_is_signed_at_a_white_address_counts_for_its_account() -> None:
    """As on the fast path. Others may name the account there, but not spend what is its own."""
    own = Account("account-1", "secret-1", white_addresses=AddressPattern.of(HOST))
    for _, access in (control(OWN, white=HOST), control(own)):
        limits = access.limits = PlayedLimits()
        access.check(send(), HOST)
        access.check(signed(310, Account("account-1", "wrong"), b="T"), HOST)
        assert limits.taken == ["account-1"]
        limits.bytes_max = 0
        with pytest.raises(RequestRefused, match="too much"):
            access.check(send(), HOST)
    _, access = control(OWN, white=HOST)
    limits = access.limits = PlayedLimits(bytes_max=0)
    access.check(signed(310, Account("nobody", "secret-1")), HOST)
    access.check(RemotingCommand.request(310, ext_fields={}), HOST)
    assert limits.taken == []


def test_without_limits_of_accounts_nothing_is_taken() -> None:
    _, access = control(OWN)
    limits = access.limits = PlayedLimits(bytes_max=0, limits_accounts=False)
    access.check(send(), HOST)
    assert limits.taken == []


@attrs.frozen
class Unit:
    phy_offset: int
    size: int = 100
    tags_code: int = 0


class Queues:
    """Only (T, 0) has a message: at offset 7 of the queue and 500 of the log."""

    def consume_queue_units(self, topic: str, queue_id: int, index: int, count: int) -> list[Unit]:
        return [Unit(500)] if (topic, queue_id, index) == ("T", 0, 7) else []


@pytest.mark.parametrize(
    ("place", "topic", "strict", "text"),
    [
        ((7, 500), "T", True, None),
        ((7, 500), "other", True, "there is no message of topic other at offset 500"),
        ((7, 510), "T", True, "there is no message of topic T at offset 510"),  # inside of a body
        ((8, 500), "T", True, "there is no message"),
        ((8, 510), "other", False, None),
    ],
)
def test_a_message_that_is_named_by_its_place(
    place: tuple[int, int], topic: str, strict: bool, text: str | None
) -> None:
    """A message's body can look like a record whose body spans the messages of other topics."""
    _, access = control(OWN, strict=strict)
    record: Any = attrs.make_class("Record", ["topic", "queue_id", "queue_offset", "phy_offset"])(topic, 0, *place)
    request, store = signed(RequestCode.VIEW_MESSAGE_BY_ID, offset="500"), Queues()
    if text is None:
        access.check_message(request, HOST, record, store)  # type: ignore[arg-type]  # its queues are all that is read
    else:
        with pytest.raises(RequestRefused, match=text):
            access.check_message(request, HOST, record, store)  # type: ignore[arg-type]  # as above


def keeper(home: Path) -> tuple[Published, AccountsKeeper, Path]:
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_text(FILE)
    published = Published()
    return published, AccountsKeeper(AclFiles(home, now_ms=lambda: 1), published), path


def delete(access_key: str) -> RemotingCommand:
    return RemotingCommand(RequestCode.DELETE_ACL_CONFIG, ext_fields={"accessKey": access_key})


def test_a_changed_file_is_published_and_one_that_cannot_be_read_is_not(tmp_path: Path) -> None:
    published, accounts, path = keeper(tmp_path)
    trio.run(accounts.look)
    trio.run(accounts.look)
    assert (published.version, set(published.accounts.by_key)) == (2, {"account-1"})
    path.write_text(FILE.replace("account-1", "account-two"))
    trio.run(accounts.look)
    assert (published.version, set(published.accounts.by_key)) == (4, {"account-two"})
    path.write_text("accounts: [")
    trio.run(accounts.look)
    assert set(published.accounts.by_key) == {"account-two"}
    assert attrs.astuple(accounts.statistics)[2:] == (1, 1)


@pytest.mark.parametrize("text", ["accounts: [", ""])
def test_a_restarted_manager_publishes_nothing_until_it_can_read_the_files(tmp_path: Path, text: str) -> None:
    """It would have taken the accounts of a file away that the manager before it had read."""
    published, accounts, path = keeper(tmp_path)
    path.write_text(text)
    trio.run(accounts.look)
    assert published.version == 0
    path.write_text(FILE + " ")
    trio.run(accounts.look)
    assert (published.version, set(published.accounts.by_key)) == (2, {"account-1"})


def test_a_change_by_a_request_is_published_at_once(tmp_path: Path) -> None:
    published, accounts, _ = keeper(tmp_path)
    trio.run(accounts.look)
    trio.run(accounts.delete, delete("account-1"))
    assert (published.version, set(published.accounts.by_key)) == (4, set())
    with pytest.raises(RequestRefused):
        trio.run(accounts.delete, delete("x"))


@pytest.mark.parametrize("strict", [True, False])
def test_clients_are_remembered_by_their_accounts(strict: bool) -> None:
    """Without strict everything is as in the reference, which asks any producer of a group."""
    published, access = control(OWN, strict=strict)
    key = access.signer(send())
    assert key == ("account-1" if strict else "")
    assert access.may_send(key, HOST, "T") and access.may_send(key, HOST, "U") is not strict
    published.publish(Accounts())
    assert access.may_send(key, HOST, "T") is not strict, "the accounts of this moment count"
