"""Options of the sink `rocketmq`."""

from __future__ import annotations

import attrs

from rocketpy.client.options import ProducerOptions
from rocketpy.errors import ConfigError

from .connection import ConnectionOptions
from .options import boolean, one_of, option, size, text, whole

MIB = 1 << 20


@attrs.frozen(kw_only=True, slots=False)
class SinkOptions(ConnectionOptions):
    """The target of the messages, the size and number of requests, and the handling of a message that no broker
    takes."""

    topic: str | None = option("topic", text, None, "of all messages; otherwise there is a column topic")
    producer_group: str = option("producerGroup", text, "spark", "name of the producer group")
    batch_bytes: int = option("batchBytes", size(1, 64 * MIB), 512 << 10, "body bytes of one request, about")
    batch_records: int = option("batchRecords", whole(1, 65_536), 512, "messages of one request")
    in_flight: int = option("inFlight", whole(1, 1024), 8, "requests without an answer, for each task")
    send_timeout_ms: int = option("sendTimeoutMs", whole(1, 3_600_000), 5000, "for one message with its retries")
    retries: int = option("retryTimes", whole(0, 100), 2, "further attempts after a failure that may pass")
    compress_above: int = option("compressAbove", size(0, 1 << 31), 4096, "bodies of this size are compressed")
    message_size_max: int = option("maxMessageSize", size(1, 1 << 30), 4 * MIB, "of a body; brokers have a limit, too")
    delivery: str = option("delivery", one_of("atLeastOnce"), "atLeastOnce", "what a task that is repeated may do")
    idempotence_key: bool = option("idempotenceKey", boolean, True, "property SPARK_ID, the same in each repetition")
    on_too_large: str = option("onTooLarge", one_of("fail", "deadLetter"), "fail", "a body above maxMessageSize")
    dead_letter_topic: str | None = option("deadLetterTopic", text, None, "for onTooLarge=deadLetter")

    def __attrs_post_init__(self) -> None:
        if self.on_too_large == "deadLetter" and self.dead_letter_topic is None:
            raise ConfigError("is needed for onTooLarge=deadLetter", key="deadLetterTopic")
        if self.batch_bytes > self.message_size_max:
            raise ConfigError("must not be above maxMessageSize", key="batchBytes")

    def client(self) -> ProducerOptions:
        """Options of the producer. Raises ConfigError as `client_options`."""
        return self.producer_options(
            send_timeout=self.send_timeout_ms / 1000,
            retries=self.retries,
            async_retries=self.retries,
            compress_over=self.compress_above,
            message_size_max=self.message_size_max,
        )
