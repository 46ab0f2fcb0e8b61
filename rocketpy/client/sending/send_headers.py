"""The headers of sends, as JSON: what is equal for all messages of a producer to a queue is written once.

The extFields of SendMessageRequestHeaderV2, names in order, as all JSON headers have them::

    of the queue      a  producer group    b  topic    c  template topic    d  its queues    e  queue id
    of the message    f  sys flag    g  born timestamp    h  flag    i  properties    j  attempts
    of the queue      k  unit mode
    of the message    l  most attempts, of a retried message alone    m  true for a batch
    of the queue      n  broker name
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import attrs

from rocketpy.message import properties as names
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import is_retry_topic
from rocketpy.message.numbers import parse_int
from rocketpy.remoting.frame import format_bool

_quoted = json.encoder.encode_basestring  # as all JSON headers have texts: characters beyond ASCII stay


@attrs.define
class SendHeader:
    """The header of one send (remoting.command.EncodableHeader)."""

    text: str

    def to_json(self) -> str:
        return self.text

    def to_ext_fields(self) -> dict[str, str]:
        """Return the fields, for a signature."""
        fields: dict[str, str] = json.loads(self.text, strict=False)
        return fields


@attrs.frozen
class SendHeaders:
    """The headers of the messages that one producer sends to one queue."""

    queue: MessageQueue
    _before: str
    _unit_mode: str
    _broker_name: str
    _is_retry: bool

    @classmethod
    def of(
        cls, queue: MessageQueue, *, group: str, template_topic: str, template_queue_nums: int, unit_mode: bool
    ) -> SendHeaders:
        before = (
            f'{{"a":{_quoted(group)},"b":{_quoted(queue.topic)},"c":{_quoted(template_topic)},'
            f'"d":"{template_queue_nums}","e":"{queue.queue_id}",'
        )
        return cls(
            queue,
            before,
            f',"k":"{format_bool(unit_mode)}"',
            f',"n":{_quoted(queue.broker_name)}}}',
            is_retry_topic(queue.topic),
        )

    def write(
        self, properties: Mapping[str, str], sys_flag: int, flag: int, born_at_ms: int, is_batch: bool
    ) -> SendHeader:
        """Return the header of one message. Attempts of a retried one travel as fields and, as in Java, as properties.

        Raises:
            MessageInvalid: a property has no name or holds a separator. NumberInvalid: the attempts are no number.
        """
        times, times_max = "0", ""
        if self._is_retry:
            times = str(parse_int(properties.get(names.RECONSUME_TIME, "0")))
            most = properties.get(names.MAX_RECONSUME_TIMES)
            times_max = "" if most is None else f',"l":"{parse_int(most)}"'
        return SendHeader(
            f'{self._before}"f":"{sys_flag}","g":"{born_at_ms}","h":"{flag}",'
            f'"i":{_quoted(names.encode_properties(properties))},"j":"{times}"{self._unit_mode}{times_max},'
            f'"m":"{"true" if is_batch else "false"}"{self._broker_name}'
        )
