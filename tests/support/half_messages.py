"""A producer of transactions before the fast path of one process, and what its store holds."""

from __future__ import annotations

from typing import Any

from rocketpy.codes import RequestCode
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.record import StoredRecord, decode_records
from rocketpy.native.core import lib
from rocketpy.reactor.worker_messages import decode_put_result, encode_end
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import EndTransaction, TransactionEnd
from rocketpy.remoting.headers.send import EndTransactionRequestHeader, SendMessageRequestHeader

from .fast_path import FastPath

COMMIT, ROLLBACK = 8, 12


def half(properties: str = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01u1", **changes: Any) -> RemotingCommand:
    header = SendMessageRequestHeader(
        producer_group="P",
        topic="T",
        default_topic="TBW102",
        queue_id=2,
        sys_flag=4,
        born_timestamp_ms=77,
        flag=3,
        properties=properties,
        **changes,
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE, header, b"body")


def answers(rig: FastPath) -> list[RemotingCommand]:
    rig.turn()
    return [response for _, response in rig.answers()]


def send_half(rig: FastPath, command: RemotingCommand | None = None) -> tuple[int, int]:
    """(queue offset, log offset) as the producer learns them."""
    rig.frame(command or half())
    (answer,) = answers(rig)
    assert answer.code == 0 and answer.ext_fields is not None
    assert answer.ext_fields["queueId"] == "2"
    return int(answer.ext_fields["queueOffset"]), decode_offset_message_id(answer.ext_fields["msgId"]).phy_offset


def end_request(place: tuple[int, int], action: int, group: str = "P") -> RemotingCommand:
    header = EndTransactionRequestHeader(
        producer_group=group,
        tran_state_table_offset=place[0],
        commit_log_offset=place[1],
        commit_or_rollback=action,
        msg_id="u1",
    )
    return RemotingCommand.request(RequestCode.END_TRANSACTION, header)


def end(rig: FastPath, place: tuple[int, int], action: int, group: str = "P") -> tuple[int, str] | None:
    """The answer to END_TRANSACTION; None if there is none."""
    rig.frame(end_request(place, action, group))
    found = answers(rig)
    return (found[0].code, found[0].remark or "") if found else None


def renew(rig: FastPath, place: tuple[int, int]) -> int:
    """Store an open half message again, as the manager does. Returns the offset of the copy."""
    request = encode_end(EndTransaction(TransactionEnd.RENEW, *place), 5, 0)
    rig.tell_send(lib.RP_MSG_END_TRANSACTION, request)
    rig.turn()
    (record,) = [record for kind, record in rig.for_manager() if kind == lib.RP_MSG_PUT_RESULT]
    token, result = decode_put_result(record, ("127.0.0.1", 10911))
    assert (token, result.code) == (5, 0)
    return result.queue_offset


def stored(rig: FastPath) -> list[StoredRecord]:
    published = lib.rp_control_header(rig.block).published_phy_offset
    return list(decode_records(rig.log(0, published), check_crc=True)) if published else []


def in_topic(rig: FastPath, topic: str) -> list[StoredRecord]:
    return [record for record in stored(rig) if record.topic == topic]
