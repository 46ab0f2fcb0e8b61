"""Message trace: what clients of both languages write is found by Java's mqadmin and by ours."""

from __future__ import annotations

import pytest

from .admin_tools import python_tool
from .brokers import AnyBroker, NameMaker, TopicMaker, wait_until
from .mqadmin import MqAdmin, rows
from .programs import Launcher

COUNT = 3
WITHOUT_CONSUMER_TRACE = {"java-5.3.3"}  # its consumers write none here, at a Java broker neither


def found(text: str) -> set[tuple[str, ...]]:
    """Kind, group and outcome of each row."""
    return {(row[0], row[1], row[-1]) for row in rows(text)}


@pytest.mark.parametrize("client", ["java-4.9.8", "java-5.3.3", "python", "go"])
def test_both_tools_find_the_trace(
    client: str, launch: Launcher, broker: AnyBroker, make_topic: TopicMaker, names: NameMaker, mqadmin: MqAdmin
) -> None:
    """The broker does not make the trace topic at its start: the first trace creates it, like any topic. The Go client
    writes none before it is there."""
    if client == "go":
        first = make_topic("first")
        launch.run("python", "send", topic=first, group=f"{first}_senders", prefix=first, count=1, trace="true")
    topic, group, senders = make_topic("traced"), names("traced_group"), names("traced_senders")
    consumer = launch.start(client, "push", topic=topic, group=group, trace="true")
    consumer.wait_ready()
    sender = launch.start(
        client, "send", topic=topic, group=senders, prefix=topic, count=COUNT, trace="true", stay="true"
    )
    sender.wait_until(lambda: len(sender.of_kind("sent")) == COUNT, "all sent")
    consumer.wait_messages(COUNT)
    expected = {("Pub", senders, "success")}
    if client not in WITHOUT_CONSUMER_TRACE:
        expected.add(("Sub", group, "success"))
    for sent in sender.of_kind("sent"):
        words = ["queryMsgTraceById", "-i", str(sent["msgId"])]
        ours = [*words, "-n", broker.namesrv]
        wait_until(lambda ours=ours: found(python_tool(ours).output) == expected, f"a trace: {ours}")
        assert found(mqadmin(broker, *words)) == expected
