"""The headers that a producer writes from a template are those that the schema would write."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rocketpy.client.sending.send_headers import SendHeaders
from rocketpy.codes import RequestCode
from rocketpy.message import properties as names
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.send import SendMessageRequestHeaderV2
from rocketpy.remoting.signature import Credentials, is_signed, sign

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
TEXTS = st.text(min_size=1).filter(lambda text: not {"\x01", "\x02"} & set(text))


def headers(queue: MessageQueue, *, unit_mode: bool = False) -> SendHeaders:
    return SendHeaders.of(queue, group='g"1', template_topic="TBW102", template_queue_nums=4, unit_mode=unit_mode)


@given(
    topic=st.sampled_from(["T", "%RETRY%g", 'quoted"\\', "Ω😀"]),
    properties=st.dictionaries(TEXTS, TEXTS),
    attempts=st.none() | st.integers(0, 20),
    numbers=st.tuples(INTS, INTS, st.integers(0, (1 << 63) - 1)),
    is_batch=st.booleans(),
    unit_mode=st.booleans(),
)
def test_templates_write_what_the_schema_writes(
    topic: str,
    properties: dict[str, str],
    attempts: int | None,
    numbers: tuple[int, int, int],
    is_batch: bool,
    unit_mode: bool,
) -> None:
    queue, (sys_flag, flag, born_at_ms) = MessageQueue(topic, "broker-Ä", 7), numbers
    if attempts is not None:
        properties |= {names.RECONSUME_TIME: str(attempts), names.MAX_RECONSUME_TIMES: "16"}
    is_retry = topic.startswith("%RETRY%")
    expected = SendMessageRequestHeaderV2(
        producer_group='g"1',
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=7,
        sys_flag=sys_flag,
        born_timestamp_ms=born_at_ms,
        flag=flag,
        properties=names.encode_properties(properties),
        reconsume_times=attempts if is_retry and attempts is not None else 0,
        unit_mode=unit_mode,
        max_reconsume_times=16 if is_retry and attempts is not None else None,
        batch=is_batch,
        broker_name="broker-Ä",
    )
    header = headers(queue, unit_mode=unit_mode).write(properties, sys_flag, flag, born_at_ms, is_batch)
    assert json.loads(header.to_json(), strict=False) == expected.to_ext_fields() == header.to_ext_fields()
    assert header.to_json() == expected.to_json()


def test_a_written_header_can_be_signed() -> None:
    header = headers(MessageQueue("T", "b", 0)).write({"KEY\n": "Ω"}, 0, 0, 1, False)
    command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=header, body=b"x")
    sign(command, Credentials("access", "secret"))
    assert is_signed(RemotingCommand.decode(command.encode()), "secret")
