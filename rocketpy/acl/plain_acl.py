"""A file of accounts (plain_acl.yml) as values.

    globalWhiteRemoteAddresses:
    - 10.0.0.*
    accounts:
    - accessKey: shop-orders
      secretKey: "..."
      whiteRemoteAddress: ""
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - orders=PUB|SUB
      groupPerms:
      - billing=SUB
    dataVersion:
    - counter: 3
      timestamp: 1709288551127

What the reference would not load is an error that names file, line and key; what it ignores is a warning: keys that
nobody reads, and words that are no permission and count as DENY. No text has a secret.

Changes are made in the plain content. Unknown keys and the order stay; comments do not. As in the reference a changed
account moves to the end, what a request leaves out stays as it is, and a list of permissions replaces the old one.

Source: RocketMQ 4.9 `PlainPermissionManager#load`, `#buildPlainAccessResource`, `#updateAccessConfig`,
`#createAclAccessConfigMap`, `#deleteAccessConfig`, `#updateAclConfigFileVersion`; `UtilAll#split`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import attrs

from rocketpy.remoting.bodies.acl import AclConfig, PlainAccessConfig
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.headers.acl import CreateAccessConfigRequestHeader

from .accounts import KEY_LENGTH_MIN, Account
from .addresses import AddressInvalid, AddressPattern
from .document import Entry, read_document
from .permissions import PermissionInvalid, is_word, parse_entry, parse_permission

WHITE, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"
ACCESS_KEY, SECRET_KEY, WHITE_ADDRESS, ADMIN = "accessKey", "secretKey", "whiteRemoteAddress", "admin"
TOPIC_DEFAULT, GROUP_DEFAULT = "defaultTopicPerm", "defaultGroupPerm"
TOPIC_ENTRIES, GROUP_ENTRIES = "topicPerms", "groupPerms"
COUNTER, TIMESTAMP = "counter", "timestamp"
Document = dict[str, Any]
"""The plain content of a file."""
_OF_FILE = (WHITE, ACCOUNTS, VERSION)
_OF_ACCOUNT = (
    *(ACCESS_KEY, SECRET_KEY, WHITE_ADDRESS, ADMIN),
    *(TOPIC_DEFAULT, GROUP_DEFAULT, TOPIC_ENTRIES, GROUP_ENTRIES),
)


@attrs.frozen
class AclFile:
    """The content of one file."""

    path: str
    accounts: tuple[Account, ...] = ()
    white_addresses: tuple[AddressPattern, ...] = ()
    listed: AclConfig = attrs.field(factory=AclConfig)
    """Accounts and addresses as they are written, without secrets, for answers to operators."""
    version: DataVersion | None = None
    is_empty: bool = False
    warnings: tuple[str, ...] = ()


def check_keys(access_key: str | None, secret_key: str | None) -> str | None:
    """The fault of the keys of an account, in the words of the reference but without the secret."""
    if min(len(access_key or ""), len(secret_key or "")) >= KEY_LENGTH_MIN:
        return None
    shown_key, shown_secret = (access_key or "null"), "null" if secret_key is None else "***"
    return f"The accessKey={shown_key} and secretKey={shown_secret} cannot be null and length should longer than 6"


def parse_acl_file(data: bytes, path: str) -> AclFile:
    """Read a file.

    Raises:
        ConfigError: it cannot be read; names file, line and key.
    """
    members = read_document(data, path).mapping()
    if not members:
        return AclFile(path, is_empty=True)
    warnings = [*_unknown(members, _OF_FILE)]
    white = [(entry, entry.text() or "") for entry in _items(members, WHITE)]
    return AclFile(
        path,
        accounts=tuple(_account(entry, warnings) for entry in _items(members, ACCOUNTS)),
        white_addresses=tuple(_addresses(entry, text) for entry, text in white),
        listed=AclConfig(
            global_white_addrs=[text for _, text in white],
            plain_access_configs=[_listed(entry.mapping()) for entry in _items(members, ACCOUNTS)],
        ),
        version=_version(_items(members, VERSION)),
        warnings=tuple(warnings),
    )


def _items(members: dict[str, Entry], key: str) -> list[Entry]:
    return members[key].items() if key in members else []


def _text(members: dict[str, Entry], key: str) -> str | None:
    return members[key].text() if key in members else None


def _account(entry: Entry, warnings: list[str]) -> Account:
    members = entry.mapping()
    warnings += _unknown(members, _OF_ACCOUNT)
    access_key, secret_key = _text(members, ACCESS_KEY), _text(members, SECRET_KEY)
    fault = check_keys(access_key, secret_key)
    if fault is not None:
        entry.fail(fault, "")
    assert access_key is not None and secret_key is not None
    return Account(
        access_key,
        secret_key,
        white_addresses=_addresses(members.get(WHITE_ADDRESS, entry), _text(members, WHITE_ADDRESS) or ""),
        is_admin=members[ADMIN].flag() if ADMIN in members else False,
        default_topic_permission=_default(members, TOPIC_DEFAULT, warnings),
        default_group_permission=_default(members, GROUP_DEFAULT, warnings),
        permissions=_permissions(members, GROUP_ENTRIES, warnings) | _permissions(members, TOPIC_ENTRIES, warnings),
    )


def _listed(members: dict[str, Entry]) -> PlainAccessConfig:
    def texts(key: str) -> list[str] | None:
        return [entry.text() or "" for entry in members[key].items()] if key in members else None

    return PlainAccessConfig(
        access_key=_text(members, ACCESS_KEY),
        white_remote_address=_text(members, WHITE_ADDRESS),
        admin=members[ADMIN].flag() if ADMIN in members else False,
        default_topic_perm=_text(members, TOPIC_DEFAULT),
        default_group_perm=_text(members, GROUP_DEFAULT),
        topic_perms=texts(TOPIC_ENTRIES),
        group_perms=texts(GROUP_ENTRIES),
    )


def _addresses(entry: Entry, text: str) -> AddressPattern:
    try:
        return AddressPattern.of(text)
    except AddressInvalid as error:
        entry.fail(f"{error}; write 10.0.0.5, 10.0.1.*, 10.0.1-5.* or 10.0.2.{{1,2}} (no /8)")


def _default(members: dict[str, Entry], key: str, warnings: list[str]) -> int:
    word = _text(members, key)
    if word is not None:
        warnings += _not_a_word(members[key], word)
    return parse_permission(word)


def _permissions(members: dict[str, Entry], key: str, warnings: list[str]) -> dict[str, int]:
    """Read permissions by resource; of two entries for one resource the last counts."""
    found: dict[str, int] = {}
    for entry in _items(members, key):
        text = entry.text() or ""
        try:
            resource, found[resource] = parse_entry(text, of_group=key == GROUP_ENTRIES)
        except PermissionInvalid as error:
            entry.fail(f"{error}; write NAME=PUB, SUB, PUB|SUB or DENY")
        warnings += _not_a_word(entry, text.rpartition("=")[2])
    return found


def _version(entries: list[Entry]) -> DataVersion | None:
    if not entries:
        return None
    members = entries[0].mapping()
    for entry in members.values():
        if entry.value is not None and type(entry.value) is not int:
            entry.fail("expected a whole number")
    counter, timestamp_ms = (members[key].value or 0 if key in members else 0 for key in (COUNTER, TIMESTAMP))
    return DataVersion(counter=counter, timestamp_ms=timestamp_ms)


def _unknown(members: dict[str, Entry], known: Collection[str]) -> Iterator[str]:
    for key, entry in members.items():
        if key not in known:
            import difflib  # only a mistake needs it

            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            yield f"{entry.file}:{entry.line}: the key {key[:40]!r} is not known and has no effect{hint}"


def _not_a_word(entry: Entry, word: str) -> Iterator[str]:
    if not is_word(word):
        yield (
            f"{entry.file}:{entry.line}: {entry.key}: a word that is no permission counts as DENY; "
            "write DENY, PUB, SUB or PUB|SUB"
        )


# --- changes: what requests ask for (50, 51, 53) ----------------------------------------------------------------------


def put_account(document: Document, header: CreateAccessConfigRequestHeader) -> None:
    """Create the account, or change what the request has."""
    accounts = document.get(ACCOUNTS) or []
    found = next((account for account in accounts if _is(account, header.access_key)), None)
    account: Document = {} if found is None else found
    account |= {ACCESS_KEY: header.access_key, SECRET_KEY: header.secret_key}
    if header.white_remote_address is not None:
        account[WHITE_ADDRESS] = header.white_remote_address
    account[ADMIN] = header.admin
    if header.default_topic_perm:
        account[TOPIC_DEFAULT] = header.default_topic_perm
    if header.default_group_perm:
        account[GROUP_DEFAULT] = header.default_group_perm
    if header.topic_perms is not None:
        account[TOPIC_ENTRIES] = comma_list(header.topic_perms)
    if header.group_perms is not None:
        account[GROUP_ENTRIES] = comma_list(header.group_perms)
    document[ACCOUNTS] = [*(other for other in accounts if other is not found), account]


def remove_account(document: Document, access_key: str) -> bool:
    """Remove the account. Returns: False if it is not there."""
    accounts = document.get(ACCOUNTS) or []
    kept = [account for account in accounts if not _is(account, access_key)]
    document[ACCOUNTS] = kept
    return len(kept) < len(accounts)


def put_version(document: Document, version: DataVersion) -> None:
    document[VERSION] = [{COUNTER: version.counter, TIMESTAMP: version.timestamp_ms}]


def comma_list(text: str) -> list[str]:
    """The pieces of a list in a request, as Java splits: empty ones at the end do not count."""
    pieces = text.split(",")
    while text and pieces and not pieces[-1]:
        pieces.pop()
    return pieces


def _is(account: Document, access_key: str | None) -> bool:
    return str(account.get(ACCESS_KEY)) == access_key
