"""The streaming reader against a cluster of numbers: what a batch holds, over restarts, limits and lost messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from rocketpy.client.cluster.time_search import StoredAt
from rocketpy.client.options import ClientOptions
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.spark import stream
from rocketpy.spark.cluster import Bounds
from rocketpy.spark.data_lost import DataLost, QueueGone, TopicRemade
from rocketpy.spark.options import parse_options
from rocketpy.spark.topic_options import TopicOptions

Q0, Q1, Q2 = (MessageQueue("T", "b", number) for number in range(3))


class Numbers:
    """A cluster that has offsets and no messages."""

    def __init__(self, **bounds: tuple[int, int]) -> None:
        self.offsets = {MessageQueue("T", "b", int(name[1:])): Bounds(*both) for name, both in bounds.items()}
        self.committed_offsets: dict[MessageQueue, int] = {}
        self.now_s = 0.0
        self.created_ms: dict[str, int] = {}
        self.looked_at = 0
        self.waited_s: list[float] = []

    def get(self, options: ClientOptions) -> Numbers:
        return self

    def grow(self, **counts: int) -> None:
        for name, count in counts.items():
            queue = MessageQueue("T", "b", int(name[1:]))
            old = self.offsets.get(queue, Bounds(0, 0))
            self.offsets[queue] = Bounds(old.min_offset, old.max_offset + count)

    def existing(self, topics: Iterable[str], wait_s: float) -> tuple[set[MessageQueue], set[str]]:
        self.waited_s.append(wait_s)
        found = {queue for queue in self.offsets if queue.topic in topics}
        return found, set(topics) - {queue.topic for queue in found}

    def stored(self, queues: Mapping[MessageQueue, int], group: str) -> dict[MessageQueue, StoredAt | None]:
        """Each topic's messages are stored in the order of offsets, from its creation on."""
        self.looked_at += len(queues)
        return {queue: StoredAt(at, self.created_ms.get(queue.topic, 1000) + at) for queue, at in queues.items()}

    def bounds(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, Bounds]:
        return {queue: self.offsets[queue] for queue in queues}

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: self.offsets[queue].max_offset for queue in queues}

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.committed_offsets = dict(offsets)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Numbers:
    cluster = Numbers(q0=(10, 100), q1=(0, 50))
    monkeypatch.setattr(stream, "CLUSTERS", cluster)
    monkeypatch.setattr(stream, "mean_message_bytes", lambda options, slices: 100)
    return cluster


def reader(numbers: Numbers, **given: str) -> stream.TopicStreamReader:
    options = parse_options(TopicOptions, {"nameServer": "n:1", "topic": "T", **given})
    return stream.TopicStreamReader(options, ("body",), clock=lambda: numbers.now_s)


def kept(document: dict[str, Any]) -> dict[str, Any]:
    """As the checkpoint gives it back."""
    return dict(json.loads(json.dumps(document)))


def ranges(source: stream.TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> dict[MessageQueue, Any]:
    slices = [one for task in source.partitions(kept(start), kept(end)) for one in task.value]
    found: dict[MessageQueue, tuple[int, int]] = {}
    for one in sorted(slices, key=lambda one: one.begin):
        begin, end_before = found.get(one.queue, (one.begin, one.begin))
        assert one.begin == end_before
        found[one.queue] = (begin, one.end)
    return found


def test_batches_follow_each_other(numbers: Numbers) -> None:
    source = reader(numbers, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert ranges(source, start, end) == {Q0: (10, 100), Q1: (0, 50)}
    assert source.latestOffset(kept(end), ReadAllAvailable()) == end, "nothing is new"
    numbers.grow(q1=5)
    following = source.latestOffset(kept(end), ReadAllAvailable())
    assert ranges(source, end, following) == {Q1: (50, 55)}


def test_messages_of_the_start_are_not_lost_when_the_first_batch_crashes(numbers: Numbers) -> None:
    """With `latest` the second start is later than the first; the first one is in the end of the batch."""
    source = reader(numbers)
    start = source.initialOffset()
    numbers.grow(q0=200)
    assert source.initialOffset() == start, "Spark asks twice"
    end = kept(source.latestOffset(start, ReadAllAvailable()))
    restarted = reader(numbers)
    numbers.grow(q0=7)
    later = restarted.initialOffset()
    assert later != start
    assert ranges(restarted, later, end) == {Q0: (100, 300)}


def test_a_new_queue_is_read_from_its_begin_also_after_a_restart(numbers: Numbers) -> None:
    source = reader(numbers, discoveryInterval="10s")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    numbers.grow(q2=30)
    assert source.latestOffset(kept(end), ReadAllAvailable()) == end, "not looked for yet"
    numbers.now_s = 10.0
    following = kept(source.latestOffset(kept(end), ReadAllAvailable()))
    assert ranges(reader(numbers), end, following) == {Q2: (0, 30)}
    numbers.grow(q2=1)
    third = source.latestOffset(following, ReadAllAvailable())
    assert ranges(source, following, third) == {Q2: (30, 31)}


def test_limits_of_a_batch(numbers: Numbers) -> None:
    source = reader(numbers, startingOffsets="earliest", maxOffsetsPerTrigger="14")
    assert source.getDefaultReadLimit() == ReadMaxRows(14)
    start = source.initialOffset()
    end = source.latestOffset(start, ReadMaxRows(14))
    assert ranges(source, start, end) == {Q0: (10, 19), Q1: (0, 5)}
    assert ranges(source, start, source.latestOffset(start, ReadAllAvailable())) == {Q0: (10, 100), Q1: (0, 50)}
    by_bytes = reader(numbers, startingOffsets="earliest", maxBytesPerTrigger="1400")
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(1400)
    assert ranges(by_bytes, start, by_bytes.latestOffset(start, ReadMaxBytes(1400))) == {Q0: (10, 19), Q1: (0, 5)}


def test_a_batch_waits_for_its_minimum(numbers: Numbers) -> None:
    source = reader(numbers, minOffsetsPerTrigger="20", maxTriggerDelay="60s")
    assert source.getDefaultReadLimit() == ReadMinRows(20)
    end = source.latestOffset(source.initialOffset(), ReadMinRows(20))
    numbers.grow(q0=19)
    assert source.latestOffset(end, ReadMinRows(20)) == end
    numbers.now_s = 61.0
    following = source.latestOffset(end, ReadMinRows(20))
    assert ranges(source, end, following) == {Q0: (100, 119)}
    numbers.grow(q0=20)
    assert source.latestOffset(following, ReadMinRows(20)) != following


def test_available_now_ends_where_it_began(numbers: Numbers) -> None:
    source = reader(numbers, startingOffsets="earliest", maxOffsetsPerTrigger="100", discoveryInterval="0s")
    source.prepareForTriggerAvailableNow()
    numbers.grow(q0=1000, q2=5)
    end, batches = source.initialOffset(), 0
    while (following := kept(source.latestOffset(end, ReadMaxRows(100)))) != end:
        end, batches = following, batches + 1
    assert end["q"]["T"]["b"] == {"0": 100, "1": 50} and batches == 2


def test_lost_messages_fail_the_query_or_are_passed_over(numbers: Numbers, caplog: pytest.LogCaptureFixture) -> None:
    source = reader(numbers, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    numbers.offsets[Q0] = Bounds(40, 100)
    with pytest.raises(DataLost, match="queue 0 of topic T on b: offset 10 is wanted, 40 to 100 are there"):
        reader(numbers).partitions(kept(start), kept(end))
    tolerant = reader(numbers, failOnDataLoss="false")
    assert ranges(tolerant, start, end) == {Q0: (40, 100), Q1: (0, 50)}
    assert "30 of the offsets 10 to 100 are not there any more" in caplog.text
    del numbers.offsets[Q1]
    with pytest.raises(QueueGone, match="queue 1 of topic T on b: was read up to 0, and has no route now"):
        reader(numbers).partitions(kept(start), kept(without(end, Q0)))


def test_messages_of_a_new_queue_that_were_deleted_before_it_was_seen(
    numbers: Numbers, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: Messages of an added queue that were deleted before the query saw it were not reported."""
    source = reader(numbers, startingOffsets="earliest")
    end = kept(source.latestOffset(source.initialOffset(), ReadAllAvailable()))
    numbers.offsets[Q2] = Bounds(30, 40)
    strict, tolerant = reader(numbers), reader(numbers, failOnDataLoss="false")
    following = kept(strict.latestOffset(end, ReadAllAvailable()))
    with pytest.raises(DataLost, match="queue 2 of topic T on b: offset 0 is wanted, 30 to 40 are there"):
        strict.partitions(end, following)
    assert following == kept(tolerant.latestOffset(end, ReadAllAvailable()))
    assert ranges(tolerant, end, following) == {Q2: (30, 40)}
    assert "30 of the offsets 0 to 40 are not there any more" in caplog.text


def without(document: dict[str, Any], queue: MessageQueue) -> dict[str, Any]:
    """The document without one queue."""
    copy = kept(document)
    for part in ("from", "q"):
        del copy[part][queue.topic][queue.broker_name][str(queue.queue_id)]
    return copy


def test_a_lost_end_is_seen(numbers: Numbers) -> None:
    source = reader(numbers)
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    numbers.offsets[Q0] = Bounds(10, 13)
    with pytest.raises(DataLost, match="offset 100 is wanted, 10 to 13 are there"):
        source.latestOffset(end, ReadAllAvailable())
    tolerant = reader(numbers, failOnDataLoss="false")
    following = kept(tolerant.latestOffset(end, ReadAllAvailable()))
    assert ranges(tolerant, end, following) == {}
    numbers.grow(q0=4)
    assert ranges(tolerant, following, tolerant.latestOffset(following, ReadAllAvailable())) == {Q0: (13, 17)}


def test_a_replaced_store_is_seen(numbers: Numbers) -> None:
    source = reader(numbers)
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    numbers.offsets = {Q0: Bounds(0, 3), Q1: Bounds(0, 2)}
    with pytest.raises(TopicRemade, match="or the store was replaced"):
        source.latestOffset(end, ReadAllAvailable())
    tolerant = reader(numbers, failOnDataLoss="false")
    following = kept(tolerant.latestOffset(end, ReadAllAvailable()))
    assert ranges(tolerant, end, following) == {Q0: (0, 3), Q1: (0, 2)}


def test_a_queue_that_is_gone_fails_the_query(numbers: Numbers) -> None:
    source = reader(numbers, discoveryInterval="0s")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    del numbers.offsets[Q1]
    with pytest.raises(QueueGone, match=r"queue 1 of topic T on b: .*If its broker is down, start the query again"):
        source.latestOffset(end, ReadAllAvailable())
    tolerant = reader(numbers, failOnDataLoss="false")
    assert tolerant.latestOffset(end, ReadAllAvailable()) == end


def test_progress_and_lag(numbers: Numbers) -> None:
    source = reader(numbers, consumerGroup="g", commitToGroup="true")
    end = source.latestOffset(source.initialOffset(), ReadAllAvailable())
    source.commit(kept(end))
    assert numbers.committed_offsets == {Q0: 100, Q1: 50}
    numbers.grow(q0=5)
    source.latestOffset(end, ReadAllAvailable())
    assert source.reportLatestOffset() == {"q": {"T": {"b": {"0": 105, "1": 50}}}, "v": 1}
    quiet = reader(numbers, consumerGroup="g")
    numbers.committed_offsets = {}
    quiet.commit(kept(end))
    assert numbers.committed_offsets == {}


OTHER = MessageQueue("U", "b", 0)


def both(numbers: Numbers, **given: str) -> stream.TopicStreamReader:
    """Reads T and U."""
    options = parse_options(TopicOptions, {"nameServer": "n:1", "subscribe": "T,U", **given})
    return stream.TopicStreamReader(options, ("body",), clock=lambda: numbers.now_s)


@pytest.fixture
def after_both(numbers: Numbers) -> dict[str, Any]:
    """The checkpoint of a query that has read T and U to their ends."""
    numbers.offsets[OTHER] = Bounds(0, 20)
    source = both(numbers)
    return kept(source.latestOffset(source.initialOffset(), ReadAllAvailable()))


def test_a_query_goes_on_without_a_deleted_topic(
    numbers: Numbers, after_both: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A stream ended when one of its topics was deleted, also with failOnDataLoss=false."""
    running = both(numbers, failOnDataLoss="false", waitForTopic="60s")
    assert running.latestOffset(after_both, ReadAllAvailable()) == after_both
    assert numbers.waited_s[-1] == 60.0
    del numbers.offsets[OTHER]
    numbers.grow(q0=5)
    for source in (both(numbers, failOnDataLoss="false"), running):
        numbers.now_s += 10.0
        following = kept(source.latestOffset(after_both, ReadAllAvailable()))
        assert ranges(source, after_both, following) == {Q0: (100, 105)}
        assert source.latestOffset(following, ReadAllAvailable()) == following
    assert numbers.waited_s[-1] == 0.0, "a running query does not wait for a deleted topic"
    assert caplog.text.count("was read up to 20, and has no route now") == 2, "once for each query"
    now = both(numbers, failOnDataLoss="false")
    now.prepareForTriggerAvailableNow()
    assert ranges(now, after_both, now.latestOffset(after_both, ReadAllAvailable())) == {Q0: (100, 105)}


def test_a_deleted_topic_is_named_with_the_remedy(numbers: Numbers, after_both: dict[str, Any]) -> None:
    """Fault: The error of a deleted topic spoke of the option waitForTopic."""
    del numbers.offsets[OTHER]
    with pytest.raises(QueueGone, match=r"topic U on b: .* the topic was deleted.*checkpointLocation.*failOnDataLoss"):
        both(numbers).latestOffset(after_both, ReadAllAvailable())
    with pytest.raises(ConfigError, match="topic U does not exist"):
        both(numbers, failOnDataLoss="false").initialOffset()


def test_a_topic_without_messages_is_looked_for_before_it_counts_as_lost(
    numbers: Numbers, after_both: dict[str, Any]
) -> None:
    """A broker says 0 of a queue that it does not have."""
    source = both(numbers)
    source.latestOffset(after_both, ReadAllAvailable())
    numbers.max_offsets = lambda queues: {q: 0 if q == OTHER else numbers.offsets[q].max_offset for q in queues}  # type: ignore[method-assign]
    del numbers.offsets[OTHER]
    with pytest.raises(QueueGone, match="topic U on b"):
        source.latestOffset(after_both, ReadAllAvailable())


def test_a_topic_that_was_made_again_is_noticed(
    numbers: Numbers, after_both: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: A topic that was made again was read from the old position once it was longer."""
    assert after_both["first"] == {"T": {"b": {"0": [100 - 90, 1010]}}, "U": {"b": {"0": [0, 1000]}}}
    numbers.offsets[OTHER], numbers.created_ms["U"] = Bounds(0, 33), 9000
    with pytest.raises(TopicRemade, match=r"queue 0 of topic U on b: was read up to 20, but .* made again since"):
        both(numbers).latestOffset(after_both, ReadAllAvailable())
    source = both(numbers, failOnDataLoss="false")
    following = kept(source.latestOffset(after_both, ReadAllAvailable()))
    assert ranges(source, after_both, following) == {OTHER: (0, 33)}
    assert ranges(both(numbers), after_both, following) == {OTHER: (0, 33)}, "the repeated batch is the same"
    assert "topic U on b was deleted and made again since the checkpoint" in caplog.text
    assert both(numbers).latestOffset(following, ReadAllAvailable()) == following
    assert source.latestOffset(following, ReadAllAvailable()) == following


def test_a_batch_of_a_topic_that_was_made_again_is_not_read(numbers: Numbers, after_both: dict[str, Any]) -> None:
    numbers.offsets[OTHER], numbers.created_ms["U"] = Bounds(0, 33), 9000
    begin = kept({"q": after_both["q"] | {"U": {"b": {"0": 15}}}, "v": 1})
    with pytest.raises(TopicRemade):
        both(numbers).partitions(begin, after_both)
    assert ranges(both(numbers, failOnDataLoss="false"), begin, after_both) == {}


def test_retention_and_old_checkpoints_are_no_new_topics(numbers: Numbers, after_both: dict[str, Any]) -> None:
    old = {key: after_both[key] for key in ("q", "v")}
    numbers.offsets[Q0], numbers.offsets[OTHER] = Bounds(60, 110), Bounds(20, 20)
    for begin in (after_both, old):
        following = kept(both(numbers).latestOffset(begin, ReadAllAvailable()))
        assert following["q"]["T"]["b"] == {"0": 110, "1": 50} and "from" not in following
        assert following["first"] == {"T": {"b": {"0": [60, 1060]}}}


def test_one_message_of_a_topic_is_looked_at_after_each_discovery(numbers: Numbers, after_both: dict[str, Any]) -> None:
    source = both(numbers)
    numbers.looked_at = 0
    for _ in range(3):
        assert source.latestOffset(after_both, ReadAllAvailable()) == after_both
    assert numbers.looked_at == 2
