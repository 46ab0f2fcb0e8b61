"""Legal names, system names, namespaces."""

import pytest

from rocketpy.errors import MessageInvalid
from rocketpy.message import names


@pytest.mark.parametrize("topic", ["T", "%RETRY%g", "a|b-c_9", "t" * 127])
def test_legal_topics(topic: str) -> None:
    names.check_topic(topic)


@pytest.mark.parametrize("topic", ["", "  ", "a b", "a/b", "Ω", "t" * 128, "T\n"])
def test_illegal_topics(topic: str) -> None:
    with pytest.raises(MessageInvalid):
        names.check_topic(topic)


@pytest.mark.parametrize("group", ["", "a b", "g" * 256, "g\n"])
def test_illegal_groups(group: str) -> None:
    with pytest.raises(MessageInvalid):
        names.check_group(group)
    names.check_group("g" * 255)


def test_system_names() -> None:
    assert names.is_system_topic("TBW102") and names.is_system_topic("rmq_sys_x") and not names.is_system_topic("T")
    assert names.is_system_group("CID_RMQ_SYS_TRANS") and not names.is_system_group("G")
    assert names.NOT_ALLOWED_SEND_TOPICS < names.SYSTEM_TOPICS
    assert names.retry_topic("G") == "%RETRY%G" and names.is_retry_topic("%RETRY%G")
    assert names.dlq_topic("G") == "%DLQ%G" and names.is_dlq_topic("%DLQ%G")
    assert names.reply_topic("C") == "C_REPLY_TOPIC" and names.is_lmq_topic("%LMQ%x")


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("T", "ns%T"), ("%RETRY%G", "%RETRY%ns%G"), ("%DLQ%G", "%DLQ%ns%G"), ("ns%T", "ns%T"), ("TBW102", "TBW102"),
        ("CID_RMQ_SYS_X", "CID_RMQ_SYS_X"),
    ],
)  # fmt: skip
def test_namespaces(name: str, wrapped: str) -> None:
    assert names.with_namespace("ns", name) == wrapped
    assert names.with_namespace(None, name) == name
    assert names.without_namespace(wrapped, "ns") == name.removeprefix("ns%")
