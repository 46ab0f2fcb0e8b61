"""The decision about a request: its order, its texts, and what is counted and logged."""

from __future__ import annotations

import pytest

from rocketpy.acl.accounts import Account, Accounts
from rocketpy.acl.addresses import AddressPattern
from rocketpy.acl.permissions import DENY, PUB, SUB
from rocketpy.acl.reference import sample
from rocketpy.acl.resources import INNER_TOPICS
from rocketpy.acl.validator import AccessValidator, Reason
from rocketpy.codes import RequestCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.accounts import SECRET, signed

HOST, WHITE, OWN_WHITE = "10.9.0.1", "10.0.0.1", "10.1.0.1"
ACCOUNTS = Accounts.of(
    [
        Account("publisher", SECRET, permissions={"orders": PUB}),
        Account("subscriber", SECRET, permissions={"orders": SUB, "%RETRY%billing": SUB}),
        Account("administrator", SECRET, is_admin=True),
        Account("limited-admin", SECRET, is_admin=True, permissions={"orders": SUB}),
        Account("reader-of-all", SECRET, default_topic_permission=SUB, default_group_permission=SUB),
        Account("own-address", SECRET, white_addresses=AddressPattern.of("10.1.0.*")),
        Account("broker-account", SECRET),
        Account("denied-all", SECRET, default_topic_permission=DENY),
    ],
    [AddressPattern.of("10.0.0.*")],
)


@pytest.fixture(params=[True, False], ids=["strict", "reference"])
def validator(request: pytest.FixtureRequest) -> AccessValidator:
    return AccessValidator(ACCOUNTS, strict=request.param)


@pytest.fixture
def strict() -> AccessValidator:
    return AccessValidator(ACCOUNTS, brokers=frozenset({"broker-account"}))


def send(topic: str = "orders") -> RemotingCommand:
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, body=b"x", ext_fields={"a": "p", "b": topic})


def text_of(validator: AccessValidator, request: RemotingCommand, host: str = HOST) -> str | None:
    refusal = validator.check(request, host)
    return None if refusal is None else refusal.text


def test_the_order(validator: AccessValidator) -> None:
    """Holds: trap, signatures at the broker."""
    unsigned = send()
    assert text_of(validator, unsigned, WHITE) is None
    unsigned.ext_fields = None
    assert text_of(validator, unsigned, WHITE) is None
    assert text_of(validator, unsigned) == "No accessKey is configured"
    unsigned.ext_fields = {"AccessKey": "nobody"}
    assert text_of(validator, unsigned) == "No acl config for nobody"
    unsigned.ext_fields = {"AccessKey": "own-address"}
    assert text_of(validator, unsigned, OWN_WHITE) is None, "a white list needs no signature"
    assert text_of(validator, unsigned) == "Check signature failed for accessKey=own-address"
    assert text_of(validator, signed(send(), "own-address")) == "No default permission for topic:orders"
    wrong = signed(send(), "publisher", "another-secret")
    assert text_of(validator, wrong) == "Check signature failed for accessKey=publisher"
    assert text_of(validator, signed(send(), "publisher")) is None
    assert text_of(validator, signed(send("RMQ_SYS_TRACE_TOPIC"), "denied-all")) is None
    update = RemotingCommand.request(RequestCode.UPDATE_BROKER_CONFIG, ext_fields={})
    assert text_of(validator, signed(update, "administrator")) is None
    assert text_of(validator, signed(update, "limited-admin")) is None
    assert text_of(validator, signed(update, "publisher")) == (
        "Need admin permission for request code=25, but accessKey=publisher is not"
    )
    back = sample(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert text_of(validator, signed(back, "publisher")) == "No default permission for group:billing"


def test_an_administrator_with_permissions_by_name(validator: AccessValidator) -> None:
    """Holds: trap, administrators with resources in access control."""
    assert text_of(validator, signed(send("any"), "administrator")) is None
    assert text_of(validator, signed(send("any"), "limited-admin")) == "No default permission for topic:any"
    assert text_of(validator, signed(send(), "limited-admin")) == "No default permission for topic:orders"


def test_the_answer_is_the_one_that_clients_know() -> None:
    refusal = AccessValidator(ACCOUNTS).check(send(), HOST)
    assert refusal is not None and refusal.response_code == 1 and refusal.is_of_identity
    assert refusal.remark == "org.apache.rocketmq.acl.common.AclException: No accessKey is configured"


def test_holes_of_the_reference() -> None:
    """Holds: trap, access control checks few codes."""
    lax, strict = AccessValidator(ACCOUNTS, strict=False), AccessValidator(ACCOUNTS)
    for code in (320, 325, 14, 37, 41, 50, 28, 205, 103):
        request = signed(sample(code), "broker-account")
        assert lax.check(request, HOST) is None and strict.check(request, HOST) is not None, code


def test_roles(strict: AccessValidator) -> None:
    for code in (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.REGISTER_BROKER):
        for key in ("broker-account", "administrator", "limited-admin"):
            assert text_of(strict, signed(sample(code), key)) is None
        assert text_of(strict, signed(sample(code), "reader-of-all")) == (
            f"Need admin permission for request code={code}, but accessKey=reader-of-all is not"
        )
    assert text_of(strict, signed(sample(RequestCode.UPDATE_BROKER_CONFIG), "broker-account")) is not None
    assert text_of(strict, signed(send(), "broker-account")) is not None


def test_a_code_without_a_rule_needs_a_signature(strict: AccessValidator) -> None:
    unknown = RemotingCommand.request(29_999, ext_fields={})
    assert text_of(strict, unknown) is not None and text_of(strict, signed(unknown, "denied-all")) is None


def test_a_default_permission_gives_no_access_to_messages_of_other_topics() -> None:
    def pull(topic: str) -> RemotingCommand:
        return RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields={"topic": topic, "consumerGroup": "g"})

    named = Account("account", SECRET, permissions=dict.fromkeys(INNER_TOPICS, SUB), default_group_permission=SUB)
    strict = AccessValidator(Accounts.of([*ACCOUNTS.by_key.values(), named]))
    lax = AccessValidator(ACCOUNTS, strict=False)
    for topic in INNER_TOPICS:
        assert text_of(strict, signed(pull(topic), "reader-of-all")) == f"No default permission for topic:{topic}"
        assert text_of(strict, signed(pull(topic), "account")) is None
        assert text_of(strict, signed(pull(topic), "administrator")) is None
        assert text_of(lax, signed(pull(topic), "reader-of-all")) is None
    assert text_of(strict, signed(pull("orders"), "reader-of-all")) is None


def test_permissions_of_a_client_that_was_checked_before(strict: AccessValidator) -> None:
    assert strict.may("publisher", HOST, "orders", PUB) and not strict.may("publisher", HOST, "others", PUB)
    assert not strict.may("subscriber", HOST, "orders", PUB) and not strict.may("nobody", HOST, "orders", PUB)
    assert strict.may("", WHITE, "others", PUB), "a white address may do everything"
    strict.accounts = Accounts()
    assert not strict.may("publisher", HOST, "orders", PUB), "the account was deleted in between"
    assert strict.refused == {}


def test_the_topic_of_a_message_is_checked_when_it_is_known(strict: AccessValidator) -> None:
    view = signed(sample(RequestCode.VIEW_MESSAGE_BY_ID), "subscriber")
    assert strict.check(view, HOST) is None
    assert strict.check_topic(view, HOST, "orders", SUB) is None
    refusal = strict.check_topic(view, HOST, "others", SUB)
    assert refusal is not None and refusal.text == "No default permission for topic:others"
    assert strict.check_topic(view, WHITE, "others", SUB) is None
    assert AccessValidator(ACCOUNTS, strict=False).check_topic(view, HOST, "others", SUB) is None
    assert text_of(strict, signed(view, "publisher")) == "No default permission for any topic"
    assert strict.refused == {Reason.RESOURCE: 2}
    strict.accounts = Accounts()
    assert strict.check_topic(view, HOST, "orders", SUB) is not None, "the account was deleted in between"


def test_a_request_that_cannot_be_read(strict: AccessValidator) -> None:
    beat = RemotingCommand.request(RequestCode.HEART_BEAT, body=b"no JSON", ext_fields={})
    refusal = strict.check(signed(beat, "reader-of-all"), HOST)
    assert refusal is not None and refusal.reason is Reason.MALFORMED and not refusal.is_of_identity
    pull = RemotingCommand.request(RequestCode.PULL_MESSAGE, ext_fields={"topic": "orders"})
    assert text_of(strict, signed(pull, "subscriber")) == "the custom field <consumerGroup> is null"


def test_refusals_are_counted_and_logged_at_times(strict: AccessValidator, caplog: pytest.LogCaptureFixture) -> None:
    key = "x\ny\x1b[31m" + "z" * 10_000
    for _ in range(50):
        strict.check(RemotingCommand.request(10, ext_fields={"AccessKey": key}), HOST)
        strict.check(signed(send(), "publisher", "another-secret"), HOST)
        strict.check(signed(send(), "publisher"), HOST)
    assert strict.refused == {Reason.UNKNOWN_ACCESS_KEY: 50, Reason.SIGNATURE: 50}
    assert len(caplog.messages) == 2 and max(map(len, caplog.messages)) < 700
    assert caplog.messages[1] == (
        "access control refused SEND_MESSAGE_V2 of 10.9.0.1: Check signature failed for accessKey=publisher"
    )
    assert "\x1b" not in caplog.text and SECRET not in caplog.text and "another-secret" not in caplog.text
