"""Transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK_HALF_MESSAGE (323)."""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class EndTransactionRequestHeader(Header):
    """The producer's verdict. `commit_or_rollback` is 0 (pending), 8 (commit) or 12 (rollback)."""

    producer_group: str = wire("producerGroup")
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    commit_or_rollback: Int = wire("commitOrRollback")
    from_transaction_check: bool = wire("fromTransactionCheck", default=False)
    msg_id: str = wire("msgId", default="")
    transaction_id: str | None = wire("transactionId", default=None)
    topic: str | None = wire("topic", default=None)  # 5.x
    broker_name: str | None = wire("bname", default=None)


@header
class CheckTransactionStateRequestHeader(Header):
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_msg_id: str | None = wire("offsetMsgId", default=None)


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    msg_id: str | None = wire("msgId", default=None)  # an offsetMsgId
