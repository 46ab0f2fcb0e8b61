"""Accounts of a file: the sample of the reference, its mistakes, and the changes that requests ask for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketpy.acl.accounts import Account
from rocketpy.acl.document import read_document, write_document
from rocketpy.acl.permissions import DENY, PUB, SUB
from rocketpy.acl.plain_acl import AclFile, comma_list, parse_acl_file, put_account, put_version, remove_account
from rocketpy.errors import ConfigError
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.headers.acl import CreateAccessConfigRequestHeader
from tests.support.cases import cases

SAMPLE = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
"""
CHANGED = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*
accounts:
- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  admin: true
- accessKey: RocketMQ
  secretKey: '1234567890'
  whiteRemoteAddress: 1.2.3.4
  admin: true
  defaultTopicPerm: PUB
  defaultGroupPerm: SUB
  topicPerms:
  - a=PUB
  - ' b = SUB '
  groupPerms:
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB
dataVersion:
- counter: 1
  timestamp: 5
"""
"""As the official broker 4.9.7 writes it after the same request."""
ACCOUNT = "accounts:\n- accessKey: shop-orders\n  secretKey: only-for-tests\n"
SECRET = "only-for-tests"


def parse(text: str) -> AclFile:
    return parse_acl_file(text.encode(), "f.yml")


@pytest.mark.parametrize("text", [SAMPLE, SAMPLE.replace("\n", "\r\n"), "\ufeff" + SAMPLE])
def test_the_sample_of_the_reference(text: str) -> None:
    file = parse(text)
    first, second = file.accounts
    assert first == Account(
        "RocketMQ",
        "12345678",
        default_group_permission=SUB,
        permissions={
            "topicA": DENY,
            "topicB": PUB | SUB,
            "topicC": SUB,
            "%RETRY%groupA": DENY,
            "%RETRY%groupB": PUB | SUB,
            "%RETRY%groupC": SUB,
        },
    )
    assert second.may_everything and second.white_addresses.has("192.168.1.9")
    assert [pattern.has("10.10.103.1") for pattern in file.white_addresses] == [True, False]
    assert file.version is None and file.warnings == () and not file.is_empty


def test_what_is_listed_has_no_secrets() -> None:
    listed = parse(SAMPLE).listed
    assert listed.global_white_addrs == ["10.10.103.*", "192.168.0.*"]
    first = listed.plain_access_configs[0]
    assert [account.admin for account in listed.plain_access_configs] == [False, True]
    assert first.group_perms == ["groupA=DENY", "groupB=PUB|SUB", "groupC=SUB"] and first.default_topic_perm == "DENY"
    assert b"12345678" not in listed.encode() and b"secretKey" not in listed.encode()


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}"])
def test_an_empty_file(text: str) -> None:
    assert parse(text) == AclFile("f.yml", is_empty=True)


def test_parts_may_be_missing_or_empty() -> None:
    assert parse("accounts:\n").accounts == () and parse("accounts: []\n").accounts == ()
    assert parse("globalWhiteRemoteAddresses: []\ndataVersion: []\n").version is None
    (account,) = parse(ACCOUNT + "  topicPerms:\n  groupPerms: []\n  admin:\n  defaultTopicPerm:\n").accounts
    assert account == Account("shop-orders", SECRET)
    (shortest,) = parse("accounts:\n- accessKey: seven-7\n  secretKey: '1234567'\n").accounts
    assert shortest == Account("seven-7", "1234567")
    assert parse("dataVersion:\n- counter:\n").version == DataVersion(counter=0, timestamp_ms=0)
    versioned = parse("dataVersion:\n- counter: 3\n  timestamp: 1709288551127\n- counter: 9\n")
    assert versioned.version == DataVersion(counter=3, timestamp_ms=1709288551127)


@cases(
    "text, fault",
    [
        ("[]", "f.yml:1: expected `key: value` lines"),
        ("accounts: 1", "f.yml:1: accounts: expected a list, one `- value` line each"),
        ("accounts: {a: b}", "f.yml:1: accounts: expected a list"),
        ("accounts:\n- x", "f.yml:2: accounts: expected `key: value` lines"),
        ("accounts:\n-\n", "f.yml:2: The accessKey=null and secretKey=null cannot be null and length should longer"),
        ("accounts:\n- accessKey: shop-orders", "f.yml:2: The accessKey=shop-orders and secretKey=null cannot be"),
        (
            "accounts:\n- accessKey: short\n  secretKey: only-for-tests",
            "f.yml:2: The accessKey=short and secretKey=",
        ),
        (
            "accounts:\n- accessKey: shop-orders\n  secretKey: '123456'",
            "f.yml:2: The accessKey=shop-orders and secretKey",
        ),
        ("accounts:\n- accessKey: [x]\n", "f.yml:2: accessKey: expected a text"),
        ("accounts:\n- accessKey: shop-orders\n  secretKey: 1e12345678", "f.yml:3: secretKey: expected a text"),
        (ACCOUNT + "  admin: perhaps", "f.yml:4: admin: expected true or false"),
        (ACCOUNT + "  topicPerms: a=PUB", "f.yml:4: topicPerms: expected a list"),
        (ACCOUNT + "  topicPerms:\n  - a\n", "f.yml:5: topicPerms: Parse resource permission failed for topic:a"),
        (
            ACCOUNT + "  groupPerms:\n  - a=b=PUB\n",
            "f.yml:5: groupPerms: Parse resource permission failed for group:a=b",
        ),
        (ACCOUNT + "  topicPerms:\n  - a: PUB\n", "f.yml:5: topicPerms: expected a text"),
        (ACCOUNT + "  topicPerms:\n  -\n", "f.yml:5: topicPerms: Parse resource permission failed for topic:"),
        (ACCOUNT + "  whiteRemoteAddress: 10.0.0", "f.yml:4: whiteRemoteAddress: Netaddress examine Exception"),
        (ACCOUNT + "  whiteRemoteAddress: [10.0.0.1]", "f.yml:4: whiteRemoteAddress: expected a text"),
        (ACCOUNT + "  defaultTopicPerm: {a: b}", "f.yml:4: defaultTopicPerm: expected a text"),
        ("globalWhiteRemoteAddresses:\n- '*'\n- 1.2.3\n", "f.yml:3: globalWhiteRemoteAddresses: Netaddress examine"),
        ("globalWhiteRemoteAddresses: 1.2.3.4", "f.yml:1: globalWhiteRemoteAddresses: expected a list"),
        ("dataVersion: 3", "f.yml:1: dataVersion: expected a list"),
        ("dataVersion:\n- counter: x\n", "f.yml:2: counter: expected a whole number"),
    ],
)
def test_mistakes_name_line_and_key(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert fault in str(refused.value) and SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("globalWhiteRemoteAddresses: [10.0.0.0/8]", "write 10.0.0.5, 10.0.1.*, 10.0.1-5.* or 10.0.2.{1,2} (no /8)"),
        (ACCOUNT + "  whiteRemoteAddress: 10.0.0", "write 10.0.0.5, 10.0.1.*, 10.0.1-5.* or 10.0.2.{1,2} (no /8)"),
        (ACCOUNT + "  topicPerms: [orders]", "write NAME=PUB, SUB, PUB|SUB or DENY"),
        (ACCOUNT + "  groupPerms: [billing]", "write NAME=PUB, SUB, PUB|SUB or DENY"),
    ],
)
def test_mistakes_name_what_to_write(text: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert str(refused.value).endswith(remedy)


def test_what_has_no_effect_is_a_warning() -> None:
    text = "colour: red\n" + ACCOUNT + "  topicPerm: [a=PUB]\n  defaultTopicPerm: pub\n  topicPerms: [a=ANY, b=SUB]\n"
    file = parse(text)
    assert file.accounts[0].permissions == {"a": DENY, "b": SUB}
    assert [warning.partition(";")[0] for warning in file.warnings] == [
        "f.yml:1: the key 'colour' is not known and has no effect",
        "f.yml:5: the key 'topicPerm' is not known and has no effect",
        "f.yml:6: defaultTopicPerm: a word that is no permission counts as DENY",
        "f.yml:7: topicPerms: a word that is no permission counts as DENY",
    ]
    assert "did you mean topicPerms?" in file.warnings[1]


def test_a_change_is_written_as_the_reference_writes_it() -> None:
    header = CreateAccessConfigRequestHeader(
        access_key="RocketMQ",
        secret_key="1234567890",
        white_remote_address="1.2.3.4",
        admin=True,
        default_topic_perm="PUB",
        topic_perms="a=PUB, b = SUB ",
    )
    document = read_document(SAMPLE.encode(), "f.yml").plain()
    put_account(document, header)
    put_version(document, DataVersion().next(5))
    assert write_document(document).decode() == CHANGED
    assert parse(CHANGED).accounts[1].permissions["b"] == SUB


def test_a_list_of_permissions_replaces_the_old_one() -> None:
    document = read_document(SAMPLE.encode(), "f.yml").plain()
    fields = {"accessKey": "RocketMQ", "secretKey": "12345678", "groupPerms": "g=SUB", "defaultGroupPerm": "DENY"}
    put_account(document, CreateAccessConfigRequestHeader.from_ext_fields(fields))
    changed = document["accounts"][-1]
    assert changed["groupPerms"] == ["g=SUB"] and changed["defaultGroupPerm"] == "DENY"
    assert changed["topicPerms"] == ["topicA=DENY", "topicB=PUB|SUB", "topicC=SUB"]
    assert changed["defaultTopicPerm"] == "DENY"


def test_accounts_are_created_and_removed() -> None:
    document: dict[str, Any] = {"strange": 5}
    put_account(document, CreateAccessConfigRequestHeader(access_key="shop-orders", secret_key=SECRET))
    assert document["accounts"] == [{"accessKey": "shop-orders", "secretKey": SECRET, "admin": False}]
    assert not remove_account(document, "another") and remove_account(document, "shop-orders")
    assert document == {"strange": 5, "accounts": []}
    assert not remove_account({}, "shop-orders")


def test_lists_are_split_as_in_java() -> None:
    assert comma_list("a,b") == ["a", "b"] and comma_list(" a ,,b,,") == [" a ", "", "b"]
    assert comma_list("") == [""] and comma_list(",,") == []


def test_values_of_any_type_in_any_place() -> None:
    """Each is read or refused, and the secret is in no text."""
    rng = random.Random(8)
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        1.5,
        "",
        "x",
        "a=PUB",
        [],
        {},
        [[]],
        [None],
        {"a": "b"},
        [{}],
        [1],
        "9" * 30,
    ]
    keys = ["accounts", "globalWhiteRemoteAddresses", "dataVersion"]
    members = ["accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm"]
    for _ in range(2000):
        account: Any = {"accessKey": "shop-orders", "secretKey": SECRET}
        for name in rng.sample([*members, "topicPerms", "groupPerms"], 2):
            account[name] = rng.choice(values)
        document = {"accounts": [account]} | {rng.choice(keys): rng.choice([*values, [account, rng.choice(values)]])}
        try:
            file = parse_acl_file(write_document(document), "f.yml")
        except ConfigError as error:
            assert SECRET not in str(error)
        else:
            assert SECRET not in repr(file) + str(file.warnings)
