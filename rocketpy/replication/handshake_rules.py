"""The rules of the handshake between brokers of rocketpy: pure decisions of both sides.

The fields are in docs/understand/replication-protocol.md.

    slave: magic -> master: CHALLENGE -> slave: HELLO -> master: WELCOME, then DATA; or REFUSE

The master compares the end of the slave's log with its own before a byte is sent, so a slave with a history of its own
never gets one. With a secret, nothing that is not proved stops a slave for good.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TypeAlias

from rocketpy.native.core import lib

from .errors import (
    CannotFollow,
    Diverged,
    MasterUnusable,
    differs,
    master_begins_later,
    master_is_shorter,
    other_file_size,
)
from .frames import Fields, FrameInvalid, encode, printable
from .handshake_messages import Extent, Group, Hello, Refusal, Welcome
from .secret import MASTER, NONCE, Nonces, is_proof
from .versions import OWN, RANGES_SINCE, Versions, common, no_common_version, read_versions

ReadLog: TypeAlias = Callable[[int, int], bytes]  # (position, size) of a log, within one file
TAIL_MAX = int(lib.RP_HA_TAIL_MAX)
DIVERGED = frozenset({"behind", "longer", "diverged"})  # codes of REFUSE
LATER = "later"
"""Code of REFUSE: the master cannot tell now; all other codes need the operator."""


def log_crc(read_log: ReadLog, file_size: int, position: int, size: int) -> int | None:
    """CRC-32 of (position, size) of a log; None: they cannot be read now."""
    crc = 0
    while size:
        part = min(size, file_size - position % file_size)
        data = read_log(position, part)
        if len(data) != part:
            return None
        crc = zlib.crc32(data, crc)
        position, size = position + part, size - part
    return crc


# --- master -------------------------------------------------------------------------------------------------------


def encode_challenge(challenge: str) -> bytes:
    return encode(lib.RP_HA_TYPE_CHALLENGE, {"version": OWN.lowest, "nonce": challenge} | OWN.fields)


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


def read_hello(body: bytes) -> Hello | Refusal:
    """Decode a HELLO. Returns: a Refusal if this master does not speak its version."""
    try:
        fields = Fields(body)
        theirs = read_versions(fields)
        if fields.number("version") not in OWN:
            return Refusal("version", no_common_version(theirs, OWN))
        return Hello.read(body)
    except FrameInvalid as exc:
        return Refusal("version", f"its HELLO is not one of its version: {printable(str(exc))}")


def stranger(hello: Hello, group: Group, challenge: str) -> Refusal | None:
    """Why this is no slave of the group; None: it is one."""
    if not hello.is_proved(group.secret, challenge):
        return Refusal("secret", "it has not proved that it knows the secret in this master's haSecretFile")
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
    return Refusal("fileSize", other_file_size(hello.file_size, group.file_size))


def _unfit(hello: Hello, own: Extent) -> Refusal | None:
    log = hello.log
    if log.end > own.end:
        return Refusal("longer", master_is_shorter(log.end, own.end))
    if 0 < log.end <= own.begin:  # nothing that both have could be compared
        return Refusal("behind", master_begins_later(log.end, own.begin))
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
        return Refusal("diverged", differs(f"between {tail.begin} and {log.end}", log.end))
    return None


# --- slave --------------------------------------------------------------------------------------------------------


def tail_place(own: Extent, master: Extent) -> tuple[int, int] | None:
    """(position, size) of the last bytes of `own` that both have, which are compared; None: there are none."""
    begin = max(own.begin, master.begin, own.end - TAIL_MAX)
    return (begin, own.end - begin) if begin < own.end else None


def read_challenge(kind: int, body: bytes) -> tuple[str, Versions]:
    """The master's nonce, and the versions that it speaks.

    Raises:
        MasterUnusable: the frame is not a CHALLENGE.
    """
    try:
        fields = Fields(body)
        nonce, versions = fields.text("nonce"), read_versions(fields)
    except FrameInvalid as exc:
        raise MasterUnusable(f"it sent a wrong frame: {exc}") from exc
    if kind != lib.RP_HA_TYPE_CHALLENGE or not NONCE.fullmatch(nonce):
        raise MasterUnusable(f"it sent frame {kind} instead of CHALLENGE")
    return nonce, versions


def read_answer(
    kind: int, body: bytes, group: Group, nonces: Nonces, log: Extent, *, is_member: bool, master: Versions = OWN
) -> Welcome:
    """WELCOME. Without failover the log goes on where it ends; otherwise the caller compares epochs.

    Args:
        master: the versions of CHALLENGE.
    Raises:
        CannotFollow: refused.
        MasterUnusable: it is not an answer, is not proved, or another try may succeed.
    """
    try:
        fields = Fields(body)
        if kind == lib.RP_HA_TYPE_REFUSE:
            raise _refused(fields, group, nonces)
        if kind != lib.RP_HA_TYPE_WELCOME:
            raise MasterUnusable(f"it sent frame {kind} instead of WELCOME")
        welcome = Welcome.read(fields)
        if not is_proof(fields.text("proof"), nonces.proof(group.secret, MASTER, welcome.fields)):
            raise MasterUnusable(
                "it has not proved that it knows the secret in this slave's haSecretFile; set the same on both"
            )
    except FrameInvalid as exc:
        raise MasterUnusable(f"it sent a wrong frame: {exc}") from exc
    if welcome.version != (version := common(OWN, master)):
        raise MasterUnusable(f"it answers in version {welcome.version} of replication, and was asked in {version}")
    if welcome.version >= RANGES_SINCE and welcome.versions != master:
        raise MasterUnusable(f"its CHALLENGE named versions {master}, its WELCOME {welcome.versions}")
    start = welcome.start
    is_elsewhere = welcome.truncate is not None or (log.end and start != log.end) or start > welcome.master_end
    if not is_member and is_elsewhere:
        raise CannotFollow(f"the master wants to begin at {start}, but the log of this slave ends at {log.end}")
    return welcome


def _refused(fields: Fields, group: Group, nonces: Nonces) -> CannotFollow | MasterUnusable:
    refusal = Refusal(fields.text("code"), fields.text("reason"))
    code, reason = printable(refusal.code), printable(refusal.reason)
    if not is_proof(fields.text("proof"), nonces.proof(group.secret, MASTER, refusal.fields)):
        return MasterUnusable(
            f"it refused this slave ({code}): {reason}; it has not proved that it knows the secret in this slave's "
            "haSecretFile: set the same on both"
        )
    if code == LATER:
        return MasterUnusable(f"it cannot serve this slave now: {reason}")
    kind = Diverged if code in DIVERGED else CannotFollow
    return kind(f"the master refused this slave ({code}): {reason}")
