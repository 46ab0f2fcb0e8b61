"""Commands that move offsets of groups, against a scripted cluster."""

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper, ResetOffsetBody
from rocketpy.remoting.headers.client import ResetOffsetRequestHeader
from tests.support.admin import QUEUE, Mqadmin, with_group
from tests.support.cluster import FakeCluster


def test_reset_of_an_online_group(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        broker = with_group(cluster)
        broker.answer(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetBody(offset_table={QUEUE: 7}))

    lines = mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now", script=script)
    assert lines[0].endswith("timestamp(long)[-1]") and lines[2].split() == ["broker-a", "0", "7"]
    (request,) = mqadmin.cluster.brokers["broker-a"].got(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    header = ResetOffsetRequestHeader.of(request)
    assert (header.group, header.timestamp_ms, header.is_force) == ("g", -1, True)
    mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "soon", script=script, status=2)


def test_reset_of_an_offline_group_writes_its_offsets(mqadmin: Mqadmin) -> None:
    """Holds: client, replay from a time."""

    def script(cluster: FakeCluster) -> None:
        broker = with_group(cluster)
        broker.refuse(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResponseCode.CONSUMER_NOT_ONLINE)
        broker.min_offsets["T", 0] = 1000
        for _ in range(600):
            broker.store("T", 0, b"x")

    lines = mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "0", script=script)
    assert lines[2].split() == ["broker-a", "0", "1520", "1490", "1000", "1000"] and len(lines) == 3
    assert mqadmin.cluster.brokers["broker-a"].offsets == {("g", "T", 0): 1000}
    lines = mqadmin("skipAccumulatedMessage", "-g", "g", "-t", "T", script=script)
    assert lines[1].split()[-2:] == ["1600", "1600"]
    mqadmin("resetOffsetByTime", "-g", "g", "-t", "T", "-s", "now", "-f", "false", script=script)
    assert mqadmin.cluster.brokers["broker-a"].offsets == {}, "without force nothing moves forwards"


def test_clone_copies_all_topics_of_the_group(mqadmin: Mqadmin) -> None:
    """Fault: `mqadmin cloneGroupOffset` copied the offsets of one topic only."""
    none = MessageQueue("T", "broker-a", 1)

    def script(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=2, U=1, **{"%RETRY%g": 1})
        table = {
            QUEUE: OffsetWrapper(broker_offset=1520, consumer_offset=1490),
            none: OffsetWrapper(broker_offset=3, consumer_offset=-1),
            MessageQueue("U", "broker-a", 0): OffsetWrapper(broker_offset=5, consumer_offset=0),
        }
        broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=table))

    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "T", script=script)
    assert mqadmin.cluster.brokers["broker-a"].offsets == {("g2", "T", 0): 1490, ("g2", "U", 0): 0}
    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "Other", script=script, status=4)


def test_a_group_without_offsets_is_not_cloned(mqadmin: Mqadmin) -> None:
    def script(cluster: FakeCluster) -> None:
        cluster.add_broker(T=1, **{"%RETRY%g": 1}).answer(RequestCode.GET_CONSUME_STATS, ConsumeStats())

    mqadmin("cloneGroupOffset", "-s", "g", "-d", "g2", "-t", "T", script=script, status=4)
