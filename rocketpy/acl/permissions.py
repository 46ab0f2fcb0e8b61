"""Permissions as bits, and the words and entries of a file of accounts that become them.

    PUB  SUB  PUB|SUB  SUB|PUB  DENY      any other word is DENY, as in the reference; a file's reader warns of it
    topicA=PUB                            an entry of topicPerms
    groupA=SUB                            an entry of groupPerms: the resource is %RETRY%groupA

ANY is needed by requests that a publisher or a subscriber may send; no word owns it.
Source: RocketMQ 4.9 `Permission`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketpy.errors import RocketError
from rocketpy.message.names import RETRY_PREFIX

from .addresses import BLANKS

DENY: Final = 1
ANY: Final = 1 << 1
PUB: Final = 1 << 2
SUB: Final = 1 << 3
WORDS: Mapping[str, int] = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}


class PermissionInvalid(RocketError):
    """An entry that is not `resource=permission`, in the words of the reference."""


def allows(owned: int, needed: int) -> bool:
    """Return True if the bits of an account allow what a request needs. DENY overrides all other bits."""
    if owned & DENY:
        return False
    return bool(owned & (PUB | SUB if needed & ANY else needed))


def parse_permission(word: str | None) -> int:
    return DENY if word is None else WORDS.get(word.strip(BLANKS), DENY)


def group_resource(group: str) -> str:
    """The name under which permissions of a group are kept and asked for: its retry topic."""
    return RETRY_PREFIX + group


def is_group(resource: str) -> bool:
    return resource.startswith(RETRY_PREFIX)


def shown(resource: str) -> str:
    """`topic:T` or `group:g`, for remarks."""
    return f"group:{resource[len(RETRY_PREFIX) :]}" if is_group(resource) else f"topic:{resource}"


def parse_entry(entry: str, *, of_group: bool) -> tuple[str, int]:
    """The resource and the permission of an entry of topicPerms or groupPerms.

    Raises:
        PermissionInvalid: it has not two parts.
    """
    parts = _parts(entry)
    if len(parts) != 2:
        raise PermissionInvalid(f"Parse resource permission failed for {'group' if of_group else 'topic'}:{entry}")
    name = parts[0].strip(BLANKS)
    return group_resource(name) if of_group else name, parse_permission(parts[1])


def check_entry(entry: str) -> None:
    """Check an entry that a request brings: unlike in a file, its word must be known.

    Raises:
        PermissionInvalid: it is not.
    """
    parts = _parts(entry)
    if len(parts) != 2:
        raise PermissionInvalid(
            f"Parse Resource format error for {entry}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    if not is_word(parts[1]):
        raise PermissionInvalid(
            f"Parse resource permission error for {entry}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


def is_word(text: str) -> bool:
    return text.strip(BLANKS) in WORDS


def _parts(entry: str) -> list[str]:
    return list(filter(None, entry.split("=")))
