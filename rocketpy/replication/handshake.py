"""The handshake between brokers of rocketpy: pure decisions of both sides (docs/replication.md has the fields).

    slave: magic -> master: CHALLENGE -> slave: HELLO -> master: WELCOME, then DATA; or REFUSE

The master compares the end of the slave's log with its own before a byte is sent, so a slave with a history of its own
never gets one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import attrs

from rocketpy.codes import REPLICATION_VERSION
from rocketpy.failover.epochs import Epoch, EpochList, EpochsInvalid
from rocketpy.native.core import lib

from .errors import CannotFollow, Diverged, MasterUnusable
from .frames import POSITION_MAX, Fields, FrameInvalid, encode, printable
from .secret import MASTER, SLAVE, is_proof, make_proof

NO_EPOCHS = EpochList()
NONCE = re.compile(r"[0-9a-f]{32}")
TAIL_MAX = int(lib.RP_HA_TAIL_MAX)
EPOCHS_MAX = 1000
"""The newest epochs, which are sent. Two logs that have none of them in common need the operator."""
EPOCH_MAX = 2**31 - 1
DIVERGED = frozenset({"behind", "longer", "diverged"})  # codes of REFUSE
LATER = "later"
"""Code of REFUSE: the master cannot tell now; all other codes need the operator."""


@attrs.frozen(kw_only=True)
class Group:
    """What both sides must have in common."""

    cluster: str
    broker_name: str
    file_size: int  # mappedFileSizeCommitLog
    secret: bytes = attrs.field(default=b"", repr=False)

    def proof(self, role: str, challenge: str, nonce: str, member: str = "") -> str:
        """`member`: the slave's, with automatic failover."""
        return make_proof(self.secret, role, challenge, nonce, self.cluster, self.broker_name, member)


@attrs.frozen
class Membership:
    """Of a broker with automatic failover: its name, its store and the epochs of its log. Empty: it has none."""

    member: str = ""
    incarnation: str = ""
    epochs: EpochList = NO_EPOCHS


NO_MEMBER = Membership()


@attrs.frozen
class Extent:
    """The positions between which a broker has the log."""

    begin: int
    end: int


@attrs.frozen
class Tail:
    """The last bytes of a slave's log, from `begin` to its end."""

    begin: int
    crc: int


@attrs.frozen
class Hello:
    """What a slave says of itself."""

    version: int
    cluster: str
    broker_name: str
    broker_id: int
    file_size: int
    log: Extent
    tail: Tail | None
    nonce: str
    proof: str
    membership: Membership = NO_MEMBER

    @classmethod
    def read(cls, body: bytes) -> Hello:
        """Decode the body of a HELLO.

        Raises:
            FrameInvalid: a field is missing or has no value of its kind.
        """
        fields = Fields(body)
        log = Extent(fields.number("begin"), fields.number("end"))
        tail = fields.part("tail")
        nonce = fields.text("nonce")
        if not NONCE.fullmatch(nonce):
            raise FrameInvalid("nonce has not 32 hexadecimal digits")
        return cls(
            fields.number("version"),
            fields.text("cluster"),
            fields.text("brokerName"),
            fields.number("brokerId"),
            fields.number("fileSize"),
            log,
            None if tail is None else Tail(tail.number("begin"), tail.number("crc", 2**32 - 1)),
            nonce,
            fields.text("proof"),
            Membership(fields.text("member"), fields.text("incarnation"), read_epochs(fields)),
        )


def read_epochs(fields: Fields) -> EpochList:
    """The field `epochs` of a HELLO or WELCOME.

    Raises:
        FrameInvalid: it is no list of epochs in their order.
    """
    try:
        return EpochList(tuple(Epoch(*pair) for pair in fields.pairs("epochs", EPOCHS_MAX, (EPOCH_MAX, POSITION_MAX))))
    except EpochsInvalid as exc:
        raise FrameInvalid(f"epochs: {exc}") from exc


def sent_epochs(epochs: EpochList) -> list[list[int]]:
    return [[entry.number, entry.start] for entry in epochs.entries[-EPOCHS_MAX:]]


@attrs.frozen
class Refusal:
    """Why a slave gets nothing. `code` and `reason` go to the slave."""

    code: str
    reason: str

    def encode(self) -> bytes:
        return encode(lib.RP_HA_TYPE_REFUSE, {"code": self.code, "reason": self.reason})


# --- master -------------------------------------------------------------------------------------------------------


def encode_challenge(challenge: str) -> bytes:
    return encode(lib.RP_HA_TYPE_CHALLENGE, {"version": REPLICATION_VERSION, "nonce": challenge})


def start_for(
    hello: Hello, group: Group, challenge: str, own: Extent, crc_of: Callable[[int, int], int | None]
) -> int | Refusal:
    """The position of the first DATA, or why there is none.

    Args:
        own: the master's log, from the beginning of its first file on.
        crc_of: CRC-32 of (position, size) of the master's log; None: it cannot be read now.
    """
    return (
        stranger(hello, group, challenge)
        or _in_failover(hello)
        or other_files(hello, group)
        or _unfit(hello, own)
        or _diverged(hello, own, crc_of)
        or (own.begin if hello.log.end == 0 else hello.log.end)
    )


def stranger(hello: Hello, group: Group, challenge: str) -> Refusal | None:
    """Why this is no slave of the group; None: it is one."""
    if hello.version != REPLICATION_VERSION:
        return Refusal(
            "version", f"it speaks version {hello.version} of replication, this master {REPLICATION_VERSION}"
        )
    names = hello.cluster, hello.broker_name, hello.membership.member
    expected = make_proof(group.secret, SLAVE, challenge, hello.nonce, *names)
    if not is_proof(hello.proof, expected):
        return Refusal("secret", "it does not know the secret in this master's haSecretFile")
    if hello.proof and not group.secret:
        return Refusal("secret", "it has haSecretFile, this master has none; set it on both")
    if (hello.cluster, hello.broker_name) != (group.cluster, group.broker_name):
        theirs = printable(f"{hello.cluster}/{hello.broker_name}")
        return Refusal("group", f"it belongs to {theirs}, this master to {group.cluster}/{group.broker_name}")
    return None


def _in_failover(hello: Hello) -> Refusal | None:
    if not hello.membership.member:
        return None
    return Refusal("mode", "it has haMode=automatic, this master has not; set the same on both")


def other_files(hello: Hello, group: Group) -> Refusal | None:
    """Files of another size cannot be equal byte for byte."""
    if hello.file_size == group.file_size:
        return None
    return Refusal(
        "fileSize",
        f"it has mappedFileSizeCommitLog={hello.file_size}, this master {group.file_size}: they must be equal; set "
        "it to the master's and begin with an empty store",
    )


def _unfit(hello: Hello, own: Extent) -> Refusal | None:
    log = hello.log
    if log.end > own.end:
        return Refusal(
            "longer",
            f"the log of this slave ends at {log.end}, that of its master at {own.end}: the master has lost its end "
            "or is another one; keep the store of the slave, it may have messages that the master lacks",
        )
    if 0 < log.end <= own.begin:  # nothing that both have could be compared
        return Refusal(
            "behind",
            f"the log of this slave ends at {log.end}, that of its master begins at {own.begin}: what is before that "
            "has expired; begin with an empty store",
        )
    return None


def _diverged(hello: Hello, own: Extent, crc_of: Callable[[int, int], int | None]) -> Refusal | None:
    log, tail = hello.log, hello.tail
    if tail is None:
        if log.end > max(log.begin, own.begin):
            return Refusal("diverged", "it does not say what the end of its log is")
        return None
    if not max(0, log.end - TAIL_MAX) <= tail.begin < log.end:
        return Refusal("diverged", f"the end of its log cannot begin at {tail.begin} and end at {log.end}")
    crc = crc_of(tail.begin, log.end - tail.begin)
    if crc is None:
        return Refusal(LATER, f"this master cannot read its log from {tail.begin} on now")
    if crc != tail.crc:
        return Refusal(
            "diverged",
            f"the log of this slave differs from its master's between {tail.begin} and its end at {log.end}: it has a "
            "history of its own; keep its store aside and begin with an empty one",
        )
    return None


def encode_welcome(
    hello: Hello,
    group: Group,
    challenge: str,
    own: Extent,
    start: int,
    epochs: EpochList = NO_EPOCHS,
    truncate: int | None = None,
) -> bytes:
    """WELCOME: DATA begins at `start`, or the slave has to cut its log at `truncate` first."""
    return encode(
        lib.RP_HA_TYPE_WELCOME,
        {
            "version": REPLICATION_VERSION,
            "begin": own.begin,
            "end": own.end,
            "epochs": sent_epochs(epochs),
            "start": start,
            "truncate": truncate,
            "proof": group.proof(MASTER, challenge, hello.nonce, hello.membership.member),
        },
    )


# --- slave --------------------------------------------------------------------------------------------------------


def tail_place(own: Extent, master: Extent) -> tuple[int, int] | None:
    """(position, size) of the end of the slave's log, which the master is to compare; None: there is none."""
    begin = max(own.begin, master.begin, own.end - TAIL_MAX)
    return (begin, own.end - begin) if begin < own.end else None


def read_challenge(kind: int, body: bytes) -> str:
    """The master's nonce.

    Raises:
        MasterUnusable: the frame is not a CHALLENGE.
    """
    try:
        nonce = Fields(body).text("nonce")
    except FrameInvalid as exc:
        raise MasterUnusable(f"it sent a wrong frame: {exc}") from exc
    if kind != lib.RP_HA_TYPE_CHALLENGE or not NONCE.fullmatch(nonce):
        raise MasterUnusable(f"it sent frame {kind} instead of CHALLENGE")
    return nonce


def encode_hello(
    group: Group,
    broker_id: int,
    log: Extent,
    tail: Tail | None,
    challenge: str,
    nonce: str,
    membership: Membership = NO_MEMBER,
) -> bytes:
    """HELLO: what this slave is and has."""
    return encode(
        lib.RP_HA_TYPE_HELLO,
        {
            "version": REPLICATION_VERSION,
            "cluster": group.cluster,
            "brokerName": group.broker_name,
            "brokerId": broker_id,
            "member": membership.member,
            "incarnation": membership.incarnation,
            "fileSize": group.file_size,
            "begin": log.begin,
            "end": log.end,
            "tail": None if tail is None else attrs.asdict(tail),
            "epochs": sent_epochs(membership.epochs),
            "nonce": nonce,
            "proof": group.proof(SLAVE, challenge, nonce, membership.member),
        },
    )


@attrs.frozen
class Welcome:
    """What the master has agreed to."""

    start: int
    master_end: int
    epochs: EpochList = NO_EPOCHS
    truncate: int | None = None


def read_welcome(
    kind: int, body: bytes, group: Group, challenge: str, nonce: str, log: Extent, member: str = ""
) -> Welcome:
    """Without failover (`member` is empty) the log goes on where it ends; otherwise the caller compares epochs.

    Raises:
        CannotFollow: refused, or the master does not know the secret.
        MasterUnusable: it is not an answer, or another try may succeed.
    """
    try:
        fields = Fields(body)
        if kind == lib.RP_HA_TYPE_REFUSE:
            raise _refused(fields)
        if kind != lib.RP_HA_TYPE_WELCOME:
            raise MasterUnusable(f"it sent frame {kind} instead of WELCOME")
        if not is_proof(fields.text("proof"), group.proof(MASTER, challenge, nonce, member)):
            raise CannotFollow("the master does not know the secret in this slave's haSecretFile; set it on both")
        start, end = fields.number("start"), fields.number("end")
        truncate = None if fields.is_null("truncate") else fields.number("truncate")
        if not member and (truncate is not None or (log.end and start != log.end) or start > end):
            raise CannotFollow(f"the master wants to begin at {start}, but the log of this slave ends at {log.end}")
        return Welcome(start, end, read_epochs(fields), truncate)
    except FrameInvalid as exc:
        raise MasterUnusable(f"it sent a wrong frame: {exc}") from exc


def _refused(fields: Fields) -> CannotFollow | MasterUnusable:
    code, reason = printable(fields.text("code")), printable(fields.text("reason"))
    if code == LATER:
        return MasterUnusable(f"it cannot serve this slave now: {reason}")
    kind = Diverged if code in DIVERGED else CannotFollow
    return kind(f"the master refused this slave ({code}): {reason}")
