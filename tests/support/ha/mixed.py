"""Clients beside the plain senders of every history: delayed messages, transactions, request-reply, and a group that
commits its offsets. Threads with plain sockets.

Of a healed group is asked, beside what `history` asks:

1. A delayed message, a half message or a request that was acknowledged is in the log (of a synchronous group).
2. Each delayed message that the log has is delivered.
3. Each transaction that the log has has ended, if need be by a check, as its number says: delivered, or never.
4. The group has got every message: its committed offset skips none.
5. A reply that is pushed belongs to the request that waits; after all faults requests are answered.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import struct
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.message import names
from rocketpy.message.message_id import decode_offset_message_id
from rocketpy.message.record import decode_record, decode_records
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.client import ReplyMessageRequestHeader
from rocketpy.remoting.headers.send import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from tests.support.history import PULL_FOUND, Connection, pull_request, send_request
from tests.support.live_log import records_in

from .delayed import TOPIC as DELAYED
from .delayed import DelayedSends
from .history import SUCCESS, History
from .places import QUEUES, READ_TIMEOUT_S, SEND_TIMEOUT_S, STORED_CODES, TOPIC, Server, connected, key_of

if TYPE_CHECKING:
    from .group import Group

TRANSACTIONS, REQUESTS, REPLIES = "Transactions", "Requests", "DefaultCluster_REPLY_TOPIC"
PRODUCERS, ASKERS, CONSUMERS = "P", "Askers", "Followers"
PAUSE_S = 0.05
LOOK_S = 0.5
COMMIT, ROLLBACK = 8, 12
LEFT_OPEN = 4  # one transaction in so many is left to a check


def number_of(key: str) -> int:
    return int(key.rsplit(".", 1)[1])


def commits(key: str) -> bool:
    """Whether the local transaction of a message commits."""
    return number_of(key) % 3 != 0


@attrs.define(eq=False)
class Mixed:
    """Begins with its history. `stop` ends what is sent; `finish` asks a healed group, and ends all."""

    servers: Sequence[Server]
    history: History
    seed: int
    acknowledged: dict[str, set[str]] = attrs.field(init=False, factory=lambda: defaultdict(set))  # keys by log topic
    consumed: set[str] = attrs.field(init=False, factory=set)
    checked: set[str] = attrs.field(init=False, factory=set)
    operations: Counter[str] = attrs.field(init=False, factory=Counter)  # at the end
    exchanges: int = attrs.field(init=False, default=0)
    faults: list[str] = attrs.field(init=False, factory=list)
    failure: BaseException | None = attrs.field(init=False, default=None)
    _delayed: DelayedSends = attrs.field(init=False)
    _master: str = attrs.field(init=False, default="")  # at the end; before, who has acknowledged last
    _numbers: Iterator[int] = attrs.field(init=False, factory=itertools.count)
    _stop: threading.Event = attrs.field(init=False, factory=threading.Event)

    def start(self) -> None:
        self._delayed = DelayedSends(self.servers, self.seed, pause_s=PAUSE_S).__enter__()
        self._begin(self._transact, self.servers, self._stop)
        for work in (self._exchange, self._consume):
            self._begin(work, self.servers, self.history.over)
        for server in self.servers:
            self._begin(self._answer_checks, [server], self.history.over)
        self.history.checks.append(self.finish)

    def stop(self) -> None:
        """Send no more delayed messages and transactions."""
        self._stop.set()
        self._delayed.stop()
        self.acknowledged[names.SCHEDULE_TOPIC] = set(self._delayed.acknowledged)

    def _begin(
        self, work: Callable[[Connection, Server], None], servers: Sequence[Server], until: threading.Event
    ) -> None:
        """Do it with one server after the other: it returns where this one is not the right one."""

        def live() -> None:
            at = 0
            try:
                while not until.is_set():
                    server = servers[at % len(servers)]
                    at += 1
                    with contextlib.suppress(OSError, struct.error), connected(server, SEND_TIMEOUT_S) as connection:
                        work(connection, server)
                    until.wait(PAUSE_S)
            except BaseException as exc:
                self.failure = exc

        threading.Thread(target=live, daemon=True).start()

    def _next_key(self) -> str:
        return f"{self.seed}.{next(self._numbers)}"

    # --- transactions -------------------------------------------------------------------------------------------------

    def _transact(self, connection: Connection, server: Server) -> None:
        code = SUCCESS
        while code in STORED_CODES and not self._stop.wait(PAUSE_S):
            key = self._next_key()
            half = _send(TRANSACTIONS, key, f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02UNIQ_KEY\x01{key}")
            assert half.ext_fields is not None
            half.ext_fields["f"] = "4"
            reply = connection.ask(half)
            code = reply.code
            if code == SUCCESS:
                self.acknowledged[names.TRANS_HALF_TOPIC].add(key)
            if code in STORED_CODES and number_of(key) % LEFT_OPEN:
                fields = reply.ext_fields or {}
                phy_offset = decode_offset_message_id(fields["msgId"]).phy_offset
                end = _end(key, int(fields["queueOffset"]), phy_offset, is_checked=False)
                if connection.ask(end).code == ResponseCode.SLAVE_NOT_AVAILABLE:  # it has passed the half message on
                    return

    def _answer_checks(self, connection: Connection, server: Server) -> None:
        """As the producer that is asked for the outcome."""
        while not self.history.over.is_set():
            connection.send(_heartbeat(f"checked.{self.seed}", PRODUCERS))
            while not (command := connection.receive()).is_response:
                if command.code == RequestCode.CHECK_TRANSACTION_STATE:
                    header, record = CheckTransactionStateRequestHeader.of(command), decode_record(command.body or b"")
                    assert record is not None
                    key = key_of(bytes(record.body))
                    self.checked.add(key)
                    connection.send(
                        _end(key, header.tran_state_table_offset, header.commit_log_offset, is_checked=True)
                    )
            self.history.over.wait(PAUSE_S)

    # --- request-reply ------------------------------------------------------------------------------------------------

    def _exchange(self, asker: Connection, server: Server) -> None:
        """Both sides of it: `asker` sends a request and waits for the reply that another connection sends."""
        client = f"asker.{self.seed}"
        asker.ask(_heartbeat(client, ASKERS))
        with connected(server, READ_TIMEOUT_S) as answerer:
            code = SUCCESS
            while code in STORED_CODES and not self.history.over.wait(PAUSE_S):
                key = self._next_key()
                properties = f"CORRELATION_ID\x01{key}\x02REPLY_TO_CLIENT\x01{client}\x02TTL\x013000\x02"
                code = asker.ask(_send(REQUESTS, key, properties)).code
                if code == SUCCESS:
                    self.acknowledged[REQUESTS].add(key)
                if code in STORED_CODES:
                    self._reply(asker, answerer, key, properties)

    def _reply(self, asker: Connection, answerer: Connection, key: str, properties: str) -> None:
        command = _send(REPLIES, key, f"{properties}MSG_TYPE\x01reply\x02")
        command.code = RequestCode.SEND_REPLY_MESSAGE_V2
        assert command.ext_fields is not None
        command.ext_fields["e"] = "0"  # its only queue
        answerer.send(command)
        pushed = asker.receive()
        shown = key_of(pushed.body or b"")
        header = ReplyMessageRequestHeader.of(pushed)
        if shown != key or f"CORRELATION_ID\x01{key}\x02" not in (header.properties or ""):
            self.faults.append(f"request {key} gets the reply {shown}")
        answer = RemotingCommand.response()
        answer.opaque = pushed.opaque
        asker.send(answer)
        if answerer.receive().code == SUCCESS:
            self.exchanges += 1

    # --- a group ------------------------------------------------------------------------------------------------------

    def _serving(self) -> str:
        """The member that consumers turn to."""
        return self._master or next((each.member for each in self.history.answers[:-50:-1] if each.code == SUCCESS), "")

    def _consume(self, connection: Connection, server: Server) -> None:
        """Go on where the group has committed, as each consumer does that finds another broker."""
        positions: dict[int, int] = {}
        while not self.history.over.is_set() and self._serving() == server.member:
            got = False
            for queue_id in range(QUEUES):
                if queue_id not in positions:
                    reply = connection.ask(_offset(RequestCode.QUERY_CONSUMER_OFFSET, queue_id))
                    positions[queue_id] = int((reply.ext_fields or {})["offset"]) if reply.code == SUCCESS else 0
                request = pull_request(TOPIC, queue_id, positions[queue_id])
                assert request.ext_fields is not None
                request.ext_fields["consumerGroup"] = CONSUMERS
                reply = connection.ask(request)
                if reply.code != PULL_FOUND:
                    continue
                for record in decode_records(reply.body or b"", check_crc=True):
                    self.consumed.add(key_of(bytes(record.body)))
                    positions[queue_id] = record.queue_offset + 1
                connection.ask(_offset(RequestCode.UPDATE_CONSUMER_OFFSET, queue_id, str(positions[queue_id])))
                got = True
            if not got:
                self.history.over.wait(PAUSE_S)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, group: Group) -> None:
        """Wait until everything is delivered, and ask for what was promised.

        Raises:
            AssertionError: a promise is broken.
        """
        group.wait_for(group.master, "a master")
        self._master = group.master() or ""
        store, exchanges = group.members[self._master].store, self.exchanges
        deadline_s, seen = time.monotonic() + 60.0, _Seen()
        try:
            while True:
                known = {topic: set(keys) for topic, keys in list(self.acknowledged.items())}  # it grows meanwhile
                seen = _Seen.of(store)
                missing = self._missing(seen, known)
                if self.exchanges == exchanges:
                    missing["requests that are not answered any more"] = ["all"]
                if not any(missing.values()) or time.monotonic() > deadline_s:
                    break
                time.sleep(LOOK_S)
        finally:
            self.history.over.set()
        self._count(seen)
        failures = [f"{what}: {len(keys)}\n  {sorted(keys)[:10]}" for what, keys in missing.items() if keys]
        assert not failures, "\n".join([*failures, self.history.story()])
        if self.failure is not None:
            raise self.failure

    def _missing(self, seen: _Seen, acknowledged: Mapping[str, set[str]]) -> dict[str, Sequence[str]]:
        """Keys for which a promise is broken, or not fulfilled yet, by promise."""
        keys = seen.keys
        halves = keys[names.TRANS_HALF_TOPIC]
        found: dict[str, Sequence[str]] = {
            "delayed, in the log and not delivered": [*keys[names.SCHEDULE_TOPIC] - keys[DELAYED]],
            "committed and not delivered": [key for key in halves - keys[TRANSACTIONS] if commits(key)],
            "rolled back and delivered": [key for key in keys[TRANSACTIONS] if not commits(key)],
            "half messages that no check has ended": [str(offset) for offset in seen.open_halves],
            "skipped by the group": [*keys[TOPIC] - self.consumed],
            "wrong replies": self.faults,
        }
        if self.history.keeps_acknowledged:
            for topic, known in acknowledged.items():
                found[f"acknowledged and not in the log ({topic})"] = [*known - keys[topic]]
        return found

    def _count(self, seen: _Seen) -> None:
        keys = seen.keys
        self.operations = Counter(
            {
                "messages": len(keys[TOPIC]),
                "delayed": len(keys[names.SCHEDULE_TOPIC]),
                "transactions": len(keys[names.TRANS_HALF_TOPIC]),
                "committed": len(keys[TRANSACTIONS]),
                "checked": len(self.checked),
                "requests answered": self.exchanges,
                "consumed": len(self.consumed),
            }
        )
        print(dict(self.operations))


@attrs.define(eq=False)
class _Seen:
    """The contents of a log: keys by topic, and the offsets of half messages without an end."""

    keys: dict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    open_halves: set[int] = attrs.field(factory=set)

    @classmethod
    def of(cls, store: Path) -> _Seen:
        found, halves, ended = cls(), set[int](), set[int]()
        for path in sorted((store / "commitlog").iterdir()):
            for record in records_in(path):
                found.keys[record.topic].add(key_of(bytes(record.body)))
                if record.topic == names.TRANS_HALF_TOPIC:
                    halves.add(record.queue_offset)
                elif record.topic == names.TRANS_OP_HALF_TOPIC:
                    ended.add(int(record.body))
        found.open_halves = halves - ended
        return found


def _send(topic: str, key: str, properties: str) -> RemotingCommand:
    number = number_of(key)
    command = send_request(topic, number % QUEUES, [f"{key} ".encode()], number)
    assert command.ext_fields is not None
    command.ext_fields["i"] = properties
    return command


def _end(key: str, queue_offset: int, phy_offset: int, *, is_checked: bool) -> RemotingCommand:
    header = EndTransactionRequestHeader(
        producer_group=PRODUCERS,
        tran_state_table_offset=queue_offset,
        commit_log_offset=phy_offset,
        commit_or_rollback=COMMIT if commits(key) else ROLLBACK,
        from_transaction_check=is_checked,
    )
    make = RemotingCommand.oneway if is_checked else RemotingCommand.request  # as official clients
    return make(RequestCode.END_TRANSACTION, header)


def _heartbeat(client: str, group: str) -> RemotingCommand:
    body = {"clientID": client, "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
    return RemotingCommand.request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


def _offset(code: RequestCode, queue_id: int, value: str = "") -> RemotingCommand:
    fields = {"consumerGroup": CONSUMERS, "topic": TOPIC, "queueId": str(queue_id)}
    return RemotingCommand.request(code, ext_fields=fields | ({"commitOffset": value} if value else {}))
