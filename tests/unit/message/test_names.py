"""Legal names, system names."""

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message import names
from tests.support.cases import cases


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b-c_9", "t" * 127])
def test_legal_topics(topic: str) -> None:
    assert names.topic_fault(topic) is None


@pytest.mark.parametrize("topic", ["", "  ", "a b", "a/b", "Ω", "t" * 128, "T\n"])
def test_illegal_topics(topic: str) -> None:
    assert names.topic_fault(topic)


@pytest.mark.parametrize("group", ["", "a b", "g" * 256, "g\n"])
def test_illegal_groups(group: str) -> None:
    with pytest.raises(MessageInvalid):
        names.check_group(group)
    names.check_group("g" * 255)


def test_system_names() -> None:
    assert names.NOT_ALLOWED_SEND_TOPICS < names.SYSTEM_TOPICS
    assert names.retry_topic("G") == "%RETRY%G" and names.is_retry_topic("%RETRY%G")
    assert names.dlq_topic("G") == "%DLQ%G" and names.is_dlq_topic("%DLQ%G")
    assert names.reply_topic("C") == "C_REPLY_TOPIC"


@cases(
    "text",
    [
        "10.0.0.11@4711",
        "10.0.0.11@4711#98765@unit",
        "[fe80::1%eth0]@DEFAULT",
        "host-a.example.org",
        "10.0.0.1:10911",
        "\u4e2d\u6587@1",
        "a b",
        "x" * 255,
        "%",
        "DefaultCluster",
    ],
)
def test_what_users_name_freely(text: str) -> None:
    assert names.text_fault("client id", text) is None


@cases("text", ["", " ", "a\n", "\x00", "\x1bb", "\x85", "\u2028", "\ud800", "x" * 256, "x" * 10**6])
def test_what_is_no_name_of_anything(text: str) -> None:
    fault = names.text_fault("client id", text)
    assert fault is not None and fault.startswith("the client id") and len(fault) < 400 and fault.isprintable()


def test_topics_of_the_longest_groups_may_be_named_though_not_created() -> None:
    for prefix in ("%RETRY%", "%DLQ%"):
        assert names.known_topic_fault(prefix + "g" * 255) is None and names.topic_fault(prefix + "g" * 255)
        assert names.known_topic_fault(prefix + "g" * 256) and names.known_topic_fault(prefix + "a/b")
    assert names.known_topic_fault("t" * 128) and names.known_topic_fault("") and not names.known_topic_fault("ns%T")


def test_a_fault_shows_no_more_than_the_beginning_of_a_name() -> None:
    for fault in (names.topic_fault("\x01" * 3_000_000), names.group_fault("\x01" * 3_000_000)):
        assert fault is not None and len(fault) < 400
