"""The messages of a handshake: HELLO, WELCOME and REFUSE as values (fields: docs/understand/replication-protocol.md).

With a secret the proof of each covers all of its fields, and both nonces: a message that was changed on the way, or
comes from another handshake, is not trusted. A field that is not known here is neither read nor covered.
"""

from __future__ import annotations

from typing import Any

import attrs

from rocketpy.failover.rules.epochs import Epoch, EpochList, EpochsInvalid
from rocketpy.native.core import lib

from .frames import POSITION_MAX, Fields, FrameInvalid, encode
from .secret import MASTER, NONCE, SLAVE, Nonces, is_proof
from .versions import OWN, RANGES_SINCE, Versions, read_versions

NO_EPOCHS = EpochList()
EPOCHS_MAX = 1000
"""The newest epochs, which are sent. Two logs that have none of them in common need the operator."""
EPOCH_MAX = 2**31 - 1
CRC_MAX = 2**32 - 1


@attrs.frozen(kw_only=True)
class Group:
    """The settings that must be equal on both sides."""

    cluster: str
    broker_name: str
    file_size: int  # mappedFileSizeCommitLog
    secret: bytes = attrs.field(default=b"", repr=False)


@attrs.frozen
class Membership:
    """The name of a broker with automatic failover, its store and the epochs of its log. Empty: it has none."""

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
    """The bytes of a log from `begin` to a position that the frame names."""

    begin: int
    crc: int


def _range_of(sender: Any) -> Versions:
    """Return the range of a sender that names none."""
    return OWN if sender.version >= RANGES_SINCE else Versions(sender.version, sender.version)


_RANGE: Any = attrs.Factory(_range_of, takes_self=True)


@attrs.frozen
class Hello:
    """The introduction of a slave."""

    version: int
    cluster: str
    broker_name: str
    broker_id: int
    file_size: int
    log: Extent
    tail: Tail | None
    nonce: str
    proof: str = ""
    membership: Membership = NO_MEMBER
    versions: Versions = attrs.field(default=_RANGE)  # sent since version 3

    @classmethod
    def read(cls, body: bytes) -> Hello:
        """Decode the body of a HELLO.

        Raises:
            FrameInvalid: a field is missing or has no value of its kind.
        """
        fields = Fields(body)
        nonce = fields.text("nonce")
        if not NONCE.fullmatch(nonce):
            raise FrameInvalid("nonce has not 32 hexadecimal digits")
        return cls(
            fields.number("version"),
            fields.text("cluster"),
            fields.text("brokerName"),
            fields.number("brokerId"),
            fields.number("fileSize"),
            Extent(fields.number("begin"), fields.number("end")),
            _read_tail(fields),
            nonce,
            fields.text("proof"),
            Membership(fields.text("member"), fields.text("incarnation"), _read_epochs(fields)),
            _read_range(fields),
        )

    @property
    def fields(self) -> dict[str, Any]:
        """All but the proof."""
        return {
            "version": self.version,
            "cluster": self.cluster,
            "brokerName": self.broker_name,
            "brokerId": self.broker_id,
            "member": self.membership.member,
            "incarnation": self.membership.incarnation,
            "fileSize": self.file_size,
            "begin": self.log.begin,
            "end": self.log.end,
            "tail": _sent_tail(self.tail),
            "epochs": _sent_epochs(self.membership.epochs),
            "nonce": self.nonce,
        } | _sent_range(self.version, self.versions)

    def encode(self, secret: bytes, challenge: str) -> bytes:
        """The frame, with its proof."""
        proof = Nonces(challenge, self.nonce).proof(secret, SLAVE, self.fields)
        return encode(lib.RP_HA_TYPE_HELLO, self.fields | {"proof": proof})

    def is_proved(self, secret: bytes, challenge: str) -> bool:
        """Return True if the slave that sent this knows the secret; always without a secret."""
        return is_proof(self.proof, Nonces(challenge, self.nonce).proof(secret, SLAVE, self.fields))


@attrs.frozen
class Welcome:
    """The master's answer: DATA begins at `start`, unless the slave has to cut its log at `truncate` first.

    `tail`: with automatic failover, the master's bytes below `start`, which the slave compares with its own.
    """

    start: int
    master_end: int
    epochs: EpochList = NO_EPOCHS
    truncate: int | None = None
    master_begin: int = 0
    tail: Tail | None = None
    version: int = OWN.highest
    versions: Versions = attrs.field(default=_RANGE)  # of the master; sent since version 3

    @classmethod
    def read(cls, fields: Fields) -> Welcome:
        """Take the fields of a WELCOME.

        Raises:
            FrameInvalid: a field is missing or has no value of its kind.
        """
        return cls(
            fields.number("start"),
            fields.number("end"),
            _read_epochs(fields),
            None if fields.is_null("truncate") else fields.number("truncate"),
            fields.number("begin"),
            _read_tail(fields),
            fields.number("version"),
            _read_range(fields),
        )

    @property
    def fields(self) -> dict[str, Any]:
        """All but the proof."""
        return {
            "version": self.version,
            "begin": self.master_begin,
            "end": self.master_end,
            "epochs": _sent_epochs(self.epochs),
            "start": self.start,
            "truncate": self.truncate,
            "tail": _sent_tail(self.tail),
        } | _sent_range(self.version, self.versions)

    def encode(self, secret: bytes, nonces: Nonces) -> bytes:
        """The frame, with its proof."""
        return encode(lib.RP_HA_TYPE_WELCOME, self.fields | {"proof": nonces.proof(secret, MASTER, self.fields)})


@attrs.frozen
class Refusal:
    """Why a slave gets nothing. `code` and `reason` go to the slave."""

    code: str
    reason: str

    @property
    def fields(self) -> dict[str, Any]:
        """All but the proof."""
        return {"code": self.code, "reason": self.reason}

    def encode(self, secret: bytes, nonces: Nonces) -> bytes:
        """The frame, with its proof."""
        return encode(lib.RP_HA_TYPE_REFUSE, self.fields | {"proof": nonces.proof(secret, MASTER, self.fields)})


def _read_range(fields: Fields) -> Versions:
    """Read the range of a HELLO or WELCOME. Before version 3 a range is not covered by the proof, and not read."""
    version = fields.number("version")
    return Versions(version, version) if version < RANGES_SINCE else read_versions(fields)


def _sent_range(version: int, versions: Versions) -> dict[str, Any]:
    return {} if version < RANGES_SINCE else versions.fields


def _read_epochs(fields: Fields) -> EpochList:
    """Read the field `epochs` of a HELLO or WELCOME.

    Raises:
        FrameInvalid: it is no list of epochs in their order.
    """
    try:
        return EpochList(tuple(Epoch(*pair) for pair in fields.pairs("epochs", EPOCHS_MAX, (EPOCH_MAX, POSITION_MAX))))
    except EpochsInvalid as exc:
        raise FrameInvalid(f"epochs: {exc}") from exc


def _sent_epochs(epochs: EpochList) -> list[list[int]]:
    return [[entry.number, entry.start] for entry in epochs.entries[-EPOCHS_MAX:]]


def _read_tail(fields: Fields) -> Tail | None:
    """Read the field `tail`; None: it is null.

    Raises:
        FrameInvalid: it does not name a position and a CRC.
    """
    tail = fields.part("tail")
    return None if tail is None else Tail(tail.number("begin"), tail.number("crc", CRC_MAX))


def _sent_tail(tail: Tail | None) -> dict[str, int] | None:
    return None if tail is None else {"begin": tail.begin, "crc": tail.crc}
