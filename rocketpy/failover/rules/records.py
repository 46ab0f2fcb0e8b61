"""The values of a group's keys in etcd, as JSON objects. A value is checked when it is read.

config             the settings on which all members agree; the first member writes them, then `mqadmin haConfigure`
members/<member>   with the member's lease: where it is, and how far its log goes
master             with the master's lease: "the master is alive"
state              every decision is one transaction on this key's revision
switch             the operator's request for a switch-over
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from rocketpy.errors import RocketError
from rocketpy.message.numbers import INT_MAX, LONG_MAX

FORMAT = 1
TEXT_MAX = 255  # characters of a name or an address
MEMBERS_MAX = 16
VALUE_MAX = 65_536  # bytes of a value

_T = TypeVar("_T", bound=attrs.AttrsInstance)


class RecordInvalid(RocketError):
    """A value in etcd that is not what its key should hold; the text names the field."""


def _text(default: Any = attrs.NOTHING) -> Any:
    def check(_owner: object, attribute: attrs.Attribute[str], value: object) -> None:
        if not isinstance(value, str) or len(value) > TEXT_MAX:
            raise ValueError(f"{attribute.name}: not a text of at most {TEXT_MAX} characters")

    return attrs.field(default=default, validator=check)


def _number(largest: int = LONG_MAX, smallest: int = 0, default: Any = attrs.NOTHING) -> Any:
    def check(_owner: object, attribute: attrs.Attribute[int], value: object) -> None:
        if type(value) is not int or not smallest <= value <= largest:
            raise ValueError(f"{attribute.name}: not a number from {smallest} to {largest}")

    return attrs.field(default=default, validator=check)


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not 0 < len(value) <= MEMBERS_MAX or len(set(value)) != len(value):
        raise ValueError(f"members: not a list of 1 to {MEMBERS_MAX} names")
    if not all(isinstance(name, str) and 0 < len(name) <= TEXT_MAX for name in value):
        raise ValueError("members: not all are names")
    return tuple(value)


def _texts(value: object) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or len(value) > MEMBERS_MAX:
        raise ValueError(f"in_sync: not an object of at most {MEMBERS_MAX} members")
    if not all(isinstance(text, str) and len(text) <= TEXT_MAX for pair in value.items() for text in pair):
        raise ValueError("in_sync: not all are texts")
    return dict(value)


SYNC_FLUSH, ASYNC_FLUSH = "SYNC_FLUSH", "ASYNC_FLUSH"


@attrs.frozen(kw_only=True)
class GroupConfig:
    """The settings on which members of a group agree. In etcd, `members` and `in_sync_min` override those of a file."""

    format: int = _number(INT_MAX)
    mode: str = attrs.field(validator=attrs.validators.in_(("sync", "async")))
    file_size: int = _number()  # mappedFileSizeCommitLog, bytes
    members: tuple[str, ...] = attrs.field(converter=_names)
    in_sync_min: int = _number(MEMBERS_MAX, default=0)  # minInSyncReplicas; 0: an earlier version wrote this
    flush: str = _text("")  # flushDiskType that is promised; empty: as above


@attrs.frozen(kw_only=True)
class MemberRecord:
    """A member that is alive. `epoch` and `end` are its log's, for the order of candidates; they prove nothing.

    A field with a default may be absent: an earlier version did not write it.
    """

    address: str = _text()  # host:port of the broker
    ha_address: str = _text()
    broker_id: int = _number()
    incarnation: str = _text()
    epoch: int = _number(INT_MAX, -1)  # -1: a new store
    end: int = _number()
    lease: int = _number()
    flush: str = _text("")  # its flushDiskType
    fault: str = _text("")  # the reason why it cannot serve as master; empty: it can


@attrs.frozen(kw_only=True)
class MasterRecord:
    """The master is alive. Its lease is named, so that its own successor can revoke it."""

    member: str = _text()
    epoch: int = _number(INT_MAX)
    lease: int = _number()


@attrs.frozen(kw_only=True)
class GroupState:
    """The decisions of the group."""

    epoch: int = _number(INT_MAX)
    master: str = _text()
    in_sync: Mapping[str, str] = attrs.field(converter=_texts, hash=False)  # member: incarnation
    unclean: int = _number(INT_MAX, default=0)  # the last epoch that an operator began by `haElect --unclean`; 0: none

    def names(self, member: str, incarnation: str) -> bool:
        """Return True if the in-sync set has the member with just this store."""
        return self.in_sync.get(member) == incarnation


@attrs.frozen(kw_only=True)
class SwitchRequest:
    """An operator, or a master with a fault, wants another master.

    Valid while `from_epoch` is the epoch, until `until_ms` of the wall clock.
    """

    from_epoch: int = _number(INT_MAX)
    to: str = _text()
    until_ms: int = _number()


def to_json(record: Any) -> bytes:
    """Return a record as the value of its key."""
    fields = {field.name: getattr(record, field.name) for field in attrs.fields(type(record))}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
    return json.dumps(plain, separators=(",", ":"), sort_keys=True).encode()


def from_json(kind: type[_T], value: bytes) -> _T:
    """Read the value of a key. Unknown fields are left out: a later version may have more.

    Raises:
        RecordInvalid: it is no such record.
    """
    try:
        if len(value) > VALUE_MAX:
            raise ValueError(f"{len(value)} bytes, at most {VALUE_MAX}")
        found = json.loads(value)
        if not isinstance(found, dict):
            raise ValueError("not an object")
        wanted = {field.name: field.default is attrs.NOTHING for field in attrs.fields(kind)}
        return kind(**{name: found[name] for name, is_needed in wanted.items() if is_needed or name in found})
    except KeyError as exc:
        raise RecordInvalid(f"{kind.__name__} in etcd: no field {exc}") from exc
    except (ValueError, TypeError, RecursionError) as exc:
        raise RecordInvalid(f"{kind.__name__} in etcd: {exc}") from exc
