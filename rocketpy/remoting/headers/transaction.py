"""Transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39), RESUME_CHECK_HALF_MESSAGE (323)."""

from __future__ import annotations

from ..schema import Header, Int, header, wire


@header
class EndTransactionRequestHeader(Header):
    """The end of a transaction. Both offsets are those of the half message; the broker checks them and the group."""

    producer_group: str = wire("producerGroup")
    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    commit_or_rollback: Int = wire("commitOrRollback")  # 8 commit, 12 rollback, 0 not decided
    from_transaction_check: bool = wire("fromTransactionCheck", default=False)
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class CheckTransactionStateRequestHeader(Header):
    """A broker asks a producer how its transaction ended. `msg_id` is the unique id."""

    tran_state_table_offset: int = wire("tranStateTableOffset")
    commit_log_offset: int = wire("commitLogOffset")
    msg_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_msg_id: str | None = wire("offsetMsgId", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    msg_id: str | None = wire("msgId", default=None)  # an offset message id
