"""Attempts to get a broker with accounts to do what an account may not: each is refused, with the text of the
reference, and counted. The broker is a process tree of its own; each attempt is made with bare sockets."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)


from rocketpy.acl.reference import sample
from rocketpy.acl.resources import STRICT, Access
from rocketpy.acl.validator import EXCEPTION
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.config import BrokerSettings
from rocketpy.message.batch import BatchEntry, encode_batch
from rocketpy.reactor.pools import broker_pools
from rocketpy.remoting.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.frame import SerializeType
from rocketpy.remoting.headers.send import ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader
from rocketpy.remoting.signature import ACCESS_KEY, SIGNATURE, Credentials, is_signed, sign
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.waiting import metric
from tests.support.wire import Wire, offset_request, pull_request, records_of, send_request, until

ADMIN = Credentials("administrator", "secret-of-admin")
BOTH = Credentials("both-account", "secret-of-both")
SENDER = Credentials("sender-account", "secret-of-sender")
NOBODY = Credentials("nobody-account", "secret-of-nobody")
WHITE = Credentials("white-account", "secret-of-white")
UNKNOWN = Credentials("unknown-account", "secret-of-unknown")
WHITE_HOST, WHITE_OF_ONE = "127.0.3.1", "127.0.3.2"
FILE = f"""\
globalWhiteRemoteAddresses: ["{WHITE_HOST}"]
accounts:
- {{accessKey: administrator, secretKey: secret-of-admin, admin: true}}
- {{accessKey: both-account, secretKey: secret-of-both, topicPerms: [T=PUB|SUB], groupPerms: [CG=SUB]}}
- {{accessKey: sender-account, secretKey: secret-of-sender, topicPerms: [T=PUB, Mine=PUB|SUB], groupPerms: [Mine=SUB]}}
- {{accessKey: nobody-account, secretKey: secret-of-nobody}}
- {{accessKey: white-account, secretKey: secret-of-white, whiteRemoteAddress: {WHITE_OF_ONE}}}
"""
CODES = sorted(broker_pools(BrokerSettings()).codes)
SIGNATURES_ONLY = frozenset({RequestCode.SEND_BATCH_MESSAGE, RequestCode.GET_MAX_OFFSET})  # with aclStrict=false


@attrs.frozen
class Guarded:
    """A broker with accounts."""

    broker: RunningBroker
    file: Path
    metrics_port: int

    def open(self, host: str = "127.0.0.1", kind: SerializeType = SerializeType.JSON) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.broker.port), 60, source_address=(host, 0)), kind)

    def metric(self, name: str) -> float:
        return metric(self.metrics_port, name)

    def replace(self, text: str) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(text)
        new.replace(self.file)

    def write(self, text: str) -> None:
        """Replace the accounts, and wait until they are in effect."""
        count = self.broker.text().count("accounts in effect: ")
        self.replace(text)
        until(lambda: self.broker.text().count("accounts in effect: ") > count, "the accounts are in effect")


@contextlib.contextmanager
def guarded_broker(home: Path, **settings: str) -> Iterator[Guarded]:
    file, (metrics_port, _) = home / "conf" / "plain_acl.yml", free_ports()
    file.parent.mkdir()
    file.write_text(FILE)
    all_settings = {"aclEnable": "true", "rocketmqHome": str(home), "metricsPort": str(metrics_port)} | settings
    with running_broker(all_settings) as broker:
        guarded = Guarded(broker, file, metrics_port)
        with guarded.open() as wire:
            for topic in ("T", "Mine", "Other"):
                assert ask(wire, send_request(topic, b"first"), ADMIN).code == 0
        yield guarded


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with guarded_broker(tmp_path_factory.mktemp("home")) as found:
        yield found


def ask(wire: Wire, request: RemotingCommand, credentials: Credentials | None) -> RemotingCommand:
    if credentials is not None:
        request.serialize_type = wire.serialize_type
        sign(request, credentials)
    return wire.ask(request)


def is_refused(answer: RemotingCommand, text: str = "") -> bool:
    """Whether access control has refused it, with this text."""
    found = (answer.remark or "").startswith(EXCEPTION)
    assert not found or (answer.code == ResponseCode.SYSTEM_ERROR and not answer.body)
    return found and text in (answer.remark or "")


def stolen(credentials: Credentials) -> Credentials:
    """The access key of an account, and another secret."""
    return Credentials(credentials.access_key, UNKNOWN.secret_key)


@pytest.mark.parametrize("kind", SerializeType)
def test_no_code_is_served_without_an_account_that_may(guarded: Guarded, kind: SerializeType) -> None:
    with guarded.open(kind=kind) as wire:
        for code in CODES:
            assert is_refused(ask(wire, sample(code), None), "No accessKey is configured"), code
            assert is_refused(ask(wire, sample(code), UNKNOWN), "No acl config for unknown-account"), code
            assert is_refused(ask(wire, sample(code), stolen(ADMIN)), "Check signature failed"), code
            assert is_refused(ask(wire, sample(code), NOBODY)), code
            assert not is_refused(ask(wire, sample(code), ADMIN)), code


def test_an_unknown_code_is_refused_too(guarded: Guarded) -> None:
    with guarded.open() as wire:
        assert is_refused(ask(wire, RemotingCommand.request(4711, ext_fields={}), None))
        assert ask(wire, RemotingCommand.request(4711, ext_fields={}), NOBODY).code == 3


def test_only_administrators_have_administrative_codes(guarded: Guarded) -> None:
    with guarded.open() as wire:
        for code in CODES:
            if STRICT[code].access is not Access.ANY:
                assert is_refused(ask(wire, sample(code), BOTH), "Need admin permission"), code


@pytest.mark.parametrize(
    "code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]
)
@pytest.mark.parametrize("kind", SerializeType)
def test_sends(guarded: Guarded, code: int, kind: SerializeType) -> None:
    """The first of an account goes by the manager, all later ones by the fast path; both decide alike."""
    is_batch = code == RequestCode.SEND_BATCH_MESSAGE
    body = encode_batch([BatchEntry(b"x", b"")]) if is_batch else b"x"

    def send(credentials: Credentials | None, topic: str = "T") -> RemotingCommand:
        return ask(wire, send_request(topic, body, code=code, batch=is_batch, properties="A\1ä\2"), credentials)

    with guarded.open(kind=kind) as wire:
        for _ in range(3):
            assert send(SENDER).code == 0
            assert is_refused(send(SENDER, "Other"), "No default permission for topic:Other")
            assert is_refused(send(NOBODY), "No default permission for topic:T")
            assert is_refused(send(stolen(SENDER)), "Check signature failed")
            assert is_refused(send(None), "No accessKey is configured")


def test_a_signature_is_for_one_body_and_one_topic(guarded: Guarded) -> None:
    request = send_request("T", b"body")
    sign(request, SENDER)
    fields = dict(request.ext_fields or {})
    with guarded.open() as wire:
        assert wire.ask(request).code == 0
        assert wire.ask(RemotingCommand.request(request.code, body=b"body", ext_fields=fields)).code == 0  # replayed
        assert is_refused(wire.ask(RemotingCommand.request(request.code, body=b"bodz", ext_fields=fields)))
        for name, value in {"b": "Other", "a": "PH", SIGNATURE: fields[SIGNATURE][:-2] + "A="}.items():
            changed = RemotingCommand.request(request.code, body=b"body", ext_fields=fields | {name: value})
            assert is_refused(wire.ask(changed), "Check signature failed"), name


@pytest.mark.parametrize("piece_size", [1 << 20, 4000, 333])
def test_wrong_signatures_beside_right_ones(guarded: Guarded, piece_size: int) -> None:
    """Many sends in one write, or in pieces that end anywhere: each is served or refused for itself."""
    signers = [BOTH, stolen(BOTH), SENDER, BOTH, BOTH, UNKNOWN, BOTH, BOTH, BOTH, SENDER] * 5
    with guarded.open() as wire:
        requests = [wire.number(send_request("T", bytes([at]) * (at * 37))) for at in range(len(signers))]
        for request, signer in zip(requests, signers, strict=True):
            sign(request, signer)
        stream = b"".join(request.encode() for request in requests)
        for at in range(0, len(stream), piece_size):
            wire.sock.sendall(stream[at : at + piece_size])
        answers = wire.answers([request.opaque for request in requests])
    for request, signer in zip(requests, signers, strict=True):
        is_right = signer in (BOTH, SENDER)
        assert answers[request.opaque].code == 0 if is_right else is_refused(answers[request.opaque])


def test_pulls(guarded: Guarded) -> None:
    with guarded.open() as wire:
        for _ in range(3):
            for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
                assert not is_refused(ask(wire, pull_request("T", 0, code=code), BOTH))
                assert is_refused(ask(wire, pull_request("T", 0, code=code), SENDER), "No default permission")
                assert is_refused(ask(wire, pull_request("T", 0, group="other", code=code), BOTH), "group:other")
                assert is_refused(ask(wire, pull_request("T", 0, code=code), stolen(BOTH)))
                assert is_refused(ask(wire, pull_request("T", 0, code=code), None))


def test_allowed_sends_and_pulls_take_the_fast_path(guarded: Guarded) -> None:
    with guarded.open() as wire:
        for _ in range(3):
            assert ask(wire, send_request("T", b"x"), BOTH).code == 0
            assert not is_refused(ask(wire, pull_request("T", 0), BOTH))
        slow = guarded.metric("rocketpy_worker_slow_requests_total")
        for _ in range(50):
            assert ask(wire, send_request("T", b"x"), BOTH).code == 0
            assert not is_refused(ask(wire, pull_request("T", 0), BOTH))
    assert guarded.metric("rocketpy_worker_slow_requests_total") == slow


def test_oneway_requests_are_refused_in_silence(guarded: Guarded) -> None:
    with guarded.open() as wire:
        refused = guarded.metric("rocketpy_access_refused_total")
        for request in (send_request("Other", b"x", oneway=True), send_request("T", b"x", oneway=True)):
            sign(request, NOBODY)
            wire.tell(request)
        assert wire.ask(send_request("T", b"x")).opaque == 3  # the next answer is this one's
    assert guarded.metric("rocketpy_access_refused_total") == refused + 3


def test_a_heartbeat_cannot_smuggle_a_subscription(guarded: Guarded) -> None:
    def beat(*topics: str) -> RemotingCommand:
        subscriptions = [SubscriptionData(topic=topic) for topic in topics]
        body = HeartbeatData(client_id="c", producer_data_set=[])
        body.consumer_data_set = [ConsumerData(group_name="CG", subscription_data_set=subscriptions)]
        return RemotingCommand.request(RequestCode.HEART_BEAT, body=body.encode(), ext_fields={})

    with guarded.open() as wire:
        assert ask(wire, beat("T"), BOTH).code == 0
        assert is_refused(ask(wire, beat("T", "Other"), BOTH), "No default permission for topic:Other")
        assert is_refused(ask(wire, beat("T"), SENDER))


def test_a_consumer_gets_no_signature_of_an_operator_who_asks_for_its_state(guarded: Guarded) -> None:
    """The client id is the consumer's choice: signed, it would be the values of a request for an account."""
    client_id = "evil-accounttruesecret-of-evil"
    body = HeartbeatData(client_id=client_id, producer_data_set=[])
    body.consumer_data_set = [ConsumerData(group_name="CG", subscription_data_set=[SubscriptionData(topic="T")])]
    beat = RemotingCommand.request(RequestCode.HEART_BEAT, body=body.encode(), ext_fields={})
    question = {"consumerGroup": "CG", "clientId": client_id, "jstackEnable": "false"}
    with guarded.open() as consumer, guarded.open() as operator:
        assert ask(consumer, beat, BOTH).code == 0
        request = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=question)
        sign(request, ADMIN)
        operator.tell(request)
        relayed = consumer.read()
        while relayed.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            relayed = consumer.read()
        assert relayed.ext_fields == question
        forged = {"accessKey": "evil-account", "admin": "true", "secretKey": "secret-of-evil", "zz": "CGfalse"}
        signed = forged | {ACCESS_KEY: ADMIN.access_key, SIGNATURE: (request.ext_fields or {})[SIGNATURE]}
        evil = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ext_fields=signed)
        assert is_signed(evil, ADMIN.secret_key)  # so the signature is worth as much as an account


def test_white_lists(guarded: Guarded) -> None:
    """From an address that is white for one account no other account gains anything, nor this one elsewhere."""
    with guarded.open(WHITE_HOST) as all_white, guarded.open(WHITE_OF_ONE) as own, guarded.open() as other:
        for _ in range(3):
            assert ask(all_white, send_request("Other", b"x"), None).code == 0
            assert ask(own, send_request("Other", b"x"), WHITE).code == 0
            assert ask(own, send_request("Other", b"x"), stolen(WHITE)).code == 0  # as in the reference: no signature
            assert is_refused(ask(own, send_request("Other", b"x"), NOBODY))
            assert is_refused(ask(other, send_request("Other", b"x"), WHITE))


def place_of(wire: Wire, topic: str) -> int:
    """The offset in the log of the topic's first message."""
    for queue_id in range(8):
        found = records_of(ask(wire, pull_request(topic, 0, queue_id=queue_id), ADMIN))
        if found:
            return found[0].phy_offset
    raise AssertionError("no message")


def test_messages_that_are_named_by_their_place(guarded: Guarded) -> None:
    with guarded.open() as wire:
        until(lambda: bool(place_of(wire, "Other")), "the message is dispatched")
        mine, other = place_of(wire, "Mine"), place_of(wire, "Other")

        def view(offset: int) -> RemotingCommand:
            fields = {"offset": str(offset)}
            return ask(wire, RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields=fields), SENDER)

        def give_back(offset: int) -> RemotingCommand:
            header = ConsumerSendMsgBackRequestHeader(offset=offset, group="Mine", delay_level=0)
            return ask(wire, RemotingCommand.request(RequestCode.CONSUMER_SEND_MSG_BACK, header), SENDER)

        assert view(mine).code == give_back(mine).code == 0
        assert is_refused(view(other), "No default permission for topic:Other")
        assert is_refused(give_back(other), "No default permission for topic:Other")


def test_ends_of_transactions(guarded: Guarded) -> None:
    """The account that ends a transaction needs the right to send to the topic of its half message."""
    half = "TRAN_MSG\1true\2PGROUP\1PG\2"

    def end(credentials: Credentials, message_id: str, offset: str) -> RemotingCommand:
        header = EndTransactionRequestHeader(
            producer_group="PG",
            tran_state_table_offset=int(offset),
            commit_log_offset=int(message_id[16:], 16),
            commit_or_rollback=8,
        )
        return ask(wire, RemotingCommand.request(RequestCode.END_TRANSACTION, header), credentials)

    with guarded.open() as wire:
        fields = ask(wire, send_request("Other", b"half", properties=half), ADMIN).ext_fields or {}
        place = fields["msgId"], fields["queueOffset"]
        assert is_refused(end(SENDER, *place), "No default permission for topic:Other")
        assert is_refused(end(stolen(ADMIN), *place), "Check signature failed")
        assert end(ADMIN, *place).code == 0


def messages(wire: Wire, topic: str) -> int:
    """Messages of all queues of a topic."""
    return sum(
        int((ask(wire, offset_request(RequestCode.GET_MAX_OFFSET, topic, queue), ADMIN).ext_fields or {})["offset"])
        for queue in range(4)
    )


@pytest.mark.parametrize("redirection", ["TRAN_MSG\1true\2PGROUP\1PG\2", "DELAY\0011\2", "TIMER_DELAY_MS\001100\2"])
def test_properties_do_not_lead_a_message_to_another_topic(guarded: Guarded, redirection: str) -> None:
    inner = "REAL_TOPIC\1Other\2REAL_QID\0010\2RETRY_TOPIC\1Other\2"
    with guarded.open() as wire:
        other, own = messages(wire, "Other"), messages(wire, "T")
        for properties in (inner + redirection, redirection + inner):
            fields = ask(wire, send_request("T", b"x", properties=properties), SENDER).ext_fields or {}
            if "TRAN_MSG" in redirection and "msgId" in fields:
                header = EndTransactionRequestHeader(
                    producer_group="PG",
                    tran_state_table_offset=int(fields["queueOffset"]),
                    commit_log_offset=int(fields["msgId"][16:], 16),
                    commit_or_rollback=8,
                )
                ask(wire, RemotingCommand.request(RequestCode.END_TRANSACTION, header), SENDER)
        until(lambda: messages(wire, "T") + messages(wire, "Other") >= own + other + 2, "they are delivered")
        assert messages(wire, "Other") == other


def test_secrets_are_in_no_log(guarded: Guarded) -> None:
    with guarded.open() as wire:
        for credentials in (stolen(SENDER), UNKNOWN, NOBODY):
            assert is_refused(ask(wire, send_request("T", b"x"), credentials))
    until(lambda: "access control refused" in guarded.broker.text(), "refusals are logged")
    assert not re.search("secret-of", guarded.broker.text())


def test_accounts_change_while_clients_send(tmp_path: Path) -> None:
    """An account that is removed is refused from the moment on at which the new accounts are in effect, and none that
    stays is ever refused. Files that cannot be read change nothing."""
    with guarded_broker(tmp_path) as guarded:
        stop, faults = threading.Event(), list[str | None]()

        def keep_sending() -> None:
            while not stop.is_set():
                with guarded.open() as wire, contextlib.suppress(TimeoutError):
                    wire.sock.settimeout(10.0)  # a send that the killed manager had taken gets no answer
                    while not stop.is_set():
                        answer = ask(wire, send_request("T", b"x"), BOTH)
                        if answer.code != 0:
                            faults.append(answer.remark)

        thread = threading.Thread(target=keep_sending)
        thread.start()
        try:
            with guarded.open() as wire:
                assert [ask(wire, send_request("T", b"x"), SENDER).code for _ in range(3)] == [0, 0, 0]
                guarded.write("\n".join(line for line in FILE.splitlines() if "sender" not in line))
                assert is_refused(ask(wire, send_request("T", b"x"), SENDER), "No acl config for sender-account")
                assert is_refused(ask(wire, pull_request("Mine", 0, group="Mine"), SENDER))
                guarded.replace("accounts: [")
                until(lambda: guarded.metric("rocketpy_access_failing_files") == 1, "the file is found broken")
                assert ask(wire, send_request("T", b"x"), BOTH).code == 0
                guarded.broker.kill_worker("manager")
                until(lambda: ask(wire, send_request("T", b"x"), BOTH).code == 0, "the manager is back")
                assert is_refused(ask(wire, send_request("T", b"x"), SENDER))
                guarded.write(FILE)
                assert ask(wire, send_request("T", b"x"), SENDER).code == 0
        finally:
            stop.set()
            thread.join()
        assert faults == []


def test_the_holes_of_the_reference_are_open_without_strict(tmp_path: Path) -> None:
    with guarded_broker(tmp_path, aclStrict="false") as guarded, guarded.open() as wire:
        for code in SIGNATURES_ONLY:
            assert not is_refused(ask(wire, sample(code), NOBODY)), code
            assert is_refused(ask(wire, sample(code), stolen(NOBODY))), code
        assert is_refused(ask(wire, sample(RequestCode.SEND_MESSAGE_V2), NOBODY))


def test_a_broker_whose_accounts_cannot_be_read_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "conf" / "plain_acl.yml"
    file.parent.mkdir()
    file.write_text("accounts: [")
    started = running_broker({"aclEnable": "true", "rocketmqHome": str(tmp_path)})
    with pytest.raises(AssertionError, match=r"did not start:\n(.*\n)*rocketpy: .*plain_acl\.yml"), started:
        pass
