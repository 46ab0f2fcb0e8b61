"""The files of a server: which are read, when again, and how requests change them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.acl import files as module
from rocketpy.acl.files import AclFiles
from rocketpy.acl.permissions import PUB
from rocketpy.errors import ConfigError, RequestRefused
from rocketpy.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

SECRET = "only-for-tests"
NOW_MS = 1709288551127


def text_of(*keys: str, more: str = "") -> str:
    return "accounts:\n" + "".join(f"- accessKey: {key}\n  secretKey: {SECRET}\n" for key in keys) + more


class Home:
    """A directory of accounts and what reads it."""

    def __init__(self, path: Path) -> None:
        self.conf = path / "conf"
        self.files = AclFiles(path, now_ms=lambda: NOW_MS)
        self._mtime_ns = 10**18

    def write(self, name: str, text: str) -> Path:
        """Each write has a time of its own, as on a disk."""
        path = self.conf / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self._mtime_ns += 1
        os.utime(path, ns=(self._mtime_ns, self._mtime_ns))
        return path

    def update(self, **fields: str) -> None:
        self.files.update_account(CreateAccessConfigRequestHeader.from_ext_fields({"secretKey": SECRET} | fields))

    def delete(self, key: str | None) -> None:
        self.files.delete_account(DeleteAccessConfigRequestHeader(access_key=key))

    def set_white(self, addresses: str | None, path: Path | str | None = None) -> None:
        header = UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs=addresses)
        header.acl_file_full_path = None if path is None else str(path)
        self.files.update_white_addresses(header)

    @property
    def keys(self) -> set[str]:
        return set(self.files.accounts.by_key)

    @property
    def versions(self) -> tuple[int, dict[str, int]]:
        """Counters of the default file and of all files."""
        header = self.files.version_header(broker_name="b", broker_addr="a", cluster_name="c")
        every = json.loads(header.all_acl_file_version or "")
        counters = {str(Path(path).relative_to(self.conf)): version["counter"] for path, version in every.items()}
        return json.loads(header.version)["counter"], counters


@pytest.fixture
def home(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Home]:
    yield Home(tmp_path)
    assert SECRET not in caplog.text


def test_which_files_are_read(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.write("plain_acl.yml", text_of("default-account", "everywhere"))
    home.write("acl/b.yml", text_of("account-of-b", "everywhere", more="  admin: true\n"))
    home.write("acl/a/c.yaml", text_of("account-of-c", "everywhere"))
    for name in ("acl/tools.yml", "acl/other.txt", "acl/b.yml.bak", "acl/x.json", "other.yml"):
        home.write(name, text_of("never-read"))
    home.write("acl/a/tools.yml", text_of("tools-below"))
    (home.conf / "acl/directory.yml").mkdir()
    table = home.files.load()
    assert set(table.by_key) == {"default-account", "account-of-b", "account-of-c", "everywhere", "tools-below"}
    assert table.by_key["everywhere"].is_admin, "of conf/acl/b.yml, which comes first"
    assert caplog.text.count("account everywhere of") == 2


@pytest.mark.parametrize("text", [None, "", "# nothing\n"])
def test_no_accounts(home: Home, text: str | None, caplog: pytest.LogCaptureFixture) -> None:
    if text is not None:
        home.write("plain_acl.yml", text)
    assert home.files.load().by_key == {} and "there is no account" in caplog.text
    assert home.files.poll() is None
    assert home.versions == (0, {})
    home.write("plain_acl.yml", text_of("new-account"))
    table = home.files.poll()
    assert table is not None and set(table.by_key) == {"new-account"}


def test_one_file_under_several_names_is_one_file(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """As a mounted ConfigMap of Kubernetes."""
    home.write("acl/..2024/plain.yml", text_of("mounted-account"))
    (home.conf / "acl/..data").symlink_to("..2024")
    (home.conf / "acl/plain.yml").symlink_to("..data/plain.yml")
    for name in "abcdefgh":
        (home.conf / "acl" / name).symlink_to(".")
    assert set(home.files.load().by_key) == {"mounted-account"} and home.versions[1] == {"acl/plain.yml": 0}
    assert "has no effect" not in caplog.text


def test_a_start_fails_with_the_place(home: Home) -> None:
    home.write("plain_acl.yml", text_of("an-account"))
    home.write("acl/bad.yml", text_of("another-one") + "  admin: perhaps\n")
    with pytest.raises(ConfigError, match=r"acl/bad\.yml:4: admin: expected true or false"):
        home.files.load()


def test_changes_are_noticed(home: Home) -> None:
    first = home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    assert home.files.poll() is None
    home.write("plain_acl.yml", text_of("account-2"))
    assert home.files.poll() is not None and home.keys == {"account-2"}
    home.write("acl/more.yml", text_of("account-3"))
    assert home.files.poll() is not None and home.keys == {"account-2", "account-3"}
    other = home.write("new", text_of("account-4"))
    os.utime(other, ns=(first.stat().st_mtime_ns, first.stat().st_mtime_ns))
    other.rename(first)  # the same time and size
    assert home.files.poll() is not None and home.keys == {"account-3", "account-4"}
    (home.conf / "acl/more.yml").unlink()
    assert home.files.poll() is not None and home.keys == {"account-4"} and home.files.poll() is None


@pytest.mark.parametrize("text", ["accounts: [", "", "accounts:\n- accessKey: x\n", "a: &a\nb: *a\n", "#" * (1 << 21)])
def test_a_file_that_cannot_be_read_keeps_its_accounts(home: Home, text: str, caplog: pytest.LogCaptureFixture) -> None:
    path = home.write("acl/more.yml", text_of("account-1"))
    home.write("plain_acl.yml", text_of("account-2"))
    home.files.load()
    home.write("acl/more.yml", text)
    home.write("plain_acl.yml", text_of("account-3"))
    assert home.files.poll() is not None and home.keys == {"account-1", "account-3"}
    assert list(home.files.failing) == [path] and home.files.failures == 1
    assert home.files.poll() is None and caplog.text.count("accounts are kept as they were") == 1
    home.write("acl/more.yml", text_of("account-4"))
    assert home.files.poll() is not None and home.keys == {"account-3", "account-4"} and not home.files.failing


def test_a_new_file_that_cannot_be_read_changes_nothing(home: Home) -> None:
    home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    path = home.write("acl/bad.yml", "accounts: [")
    home.files.poll()
    assert home.keys == {"account-1"} and path in home.files.failing
    path.unlink()
    home.files.poll()
    assert home.keys == {"account-1"} and not home.files.failing


def test_bounds_of_the_directory(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILES_MAX", 3)
    monkeypatch.setattr(module, "ALL_BYTES_MAX", 1000)
    home.write("acl/1/2/3/4/5/6/7/eight.yml", text_of("account-1"))
    home.write("acl/1/2/3/4/5/6/7/8/nine.yml", text_of("account-9"))
    home.files.load()
    assert home.keys == {"account-1"}
    home.write("plain_acl.yml", "#" * 1000)
    assert home.files.poll() is None and home.keys == {"account-1"} and home.files.failures == 1
    for number in range(3):
        home.write(f"acl/{number}.yml", "")
    home.write("plain_acl.yml", "")
    assert home.files.poll() is None and home.files.failing
    with pytest.raises(ConfigError, match="more than 3 files or 1000 bytes"):
        AclFiles(home.conf.parent, now_ms=lambda: 0).load()


def test_an_account_is_changed_where_it_is(home: Home) -> None:
    home.write("plain_acl.yml", text_of("default-account"))
    path = home.write("acl/more.yml", "# a comment\n" + text_of("other-account") + "strange: 5\n")
    path.chmod(0o640)
    home.files.load()
    home.update(accessKey="other-account", admin="true", topicPerms="a=PUB,b=SUB")
    assert home.files.accounts.by_key["other-account"].permissions["a"] == PUB
    assert home.versions == (0, {"acl/more.yml": 1, "plain_acl.yml": 0})
    assert path.stat().st_mode & 0o777 == 0o640 and "strange: 5\n" in path.read_text()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["more.yml"], "no copies of secrets"
    home.update(accessKey="new-account")
    assert home.versions == (1, {"acl/more.yml": 1, "plain_acl.yml": 1})
    assert home.files.poll() is None, "what was written is known"
    home.update(accessKey="new-account", secretKey="1234567e89")
    assert home.files.accounts.by_key["new-account"].secret_key == "1234567e89"
    home.delete("other-account")
    assert home.keys == {"default-account", "new-account"} and home.versions[1]["acl/more.yml"] == 2


def test_the_first_account_makes_the_file(home: Home) -> None:
    home.files.load()
    home.update(accessKey="new-account", whiteRemoteAddress="")
    path = home.conf / "plain_acl.yml"
    assert path.stat().st_mode & 0o777 == 0o600 and list(home.files.accounts.by_key) == ["new-account"]
    assert path.read_text().endswith(f"dataVersion:\n- counter: 1\n  timestamp: {NOW_MS}\n")


def test_a_link_is_followed(home: Home) -> None:
    real = home.write("real", text_of("account-1"))
    (home.conf / "plain_acl.yml").symlink_to("real")
    home.files.load()
    home.update(accessKey="account-2")
    assert (home.conf / "plain_acl.yml").is_symlink() and "account-2" in real.read_text()


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "The accessKey=null and secretKey=*** cannot be null and length should longer than 6"),
        (
            {"accessKey": "short"},
            "The accessKey=short and secretKey=*** cannot be null and length should longer than 6",
        ),
        ({"accessKey": "account-1", "secretKey": "123456"}, "The accessKey=account-1 and secretKey=*** cannot be null"),
        (
            {"accessKey": "account-1", "topicPerms": ""},
            "Parse Resource format error for .\nThe expected resource",
        ),
        ({"accessKey": "account-1", "topicPerms": "a=PUB,b"}, "Parse Resource format error for b."),
        ({"accessKey": "account-1", "groupPerms": "a=ANY"}, "Parse resource permission error for a=ANY.\nThe expected"),
        ({"accessKey": "account-1", "whiteRemoteAddress": "1.2.3"}, "Netaddress examine Exception netaddress is 1.2.3"),
    ],
)
def test_changes_that_are_refused(home: Home, fields: dict[str, str], remark: str) -> None:
    path = home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    before = path.read_bytes()
    with pytest.raises(RequestRefused) as refused:
        home.update(**fields)
    assert refused.value.response_code == 209 and remark in refused.value.remark and SECRET not in refused.value.remark
    assert path.read_bytes() == before and home.files.poll() is None


@pytest.mark.parametrize(("key", "shown"), [(None, "null"), ("", "null"), ("nobody-knows", "nobody-knows")])
def test_nobody_is_deleted(home: Home, key: str | None, shown: str) -> None:
    home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    with pytest.raises(RequestRefused) as refused:
        home.delete(key)
    assert refused.value.response_code == 210
    assert refused.value.remark == f"The accesskey[{shown}] corresponding to accessConfig has been deleted failed."


def test_an_account_that_is_gone_from_its_file_is_not_deleted_again(home: Home) -> None:
    home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    home.write("plain_acl.yml", text_of("account-2"))
    with pytest.raises(RequestRefused):
        home.delete("account-1")


def test_a_damaged_file_is_not_changed(home: Home) -> None:
    path = home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()
    home.write("plain_acl.yml", "accounts: [")
    with pytest.raises(RequestRefused, match=r"plain_acl\.yml:2: not YAML"):
        home.update(accessKey="account-2")
    assert path.read_text() == "accounts: ["


def test_white_addresses(home: Home) -> None:
    default = home.write("plain_acl.yml", text_of("account-1"))
    more = home.write("acl/more.yml", text_of("account-2"))
    home.files.load()
    home.set_white("10.0.0.*,10.1.0.1")
    home.set_white("10.2.0.1", more.parent / "." / "more.yml")
    hosts = ("10.0.0.7", "10.1.0.1", "10.2.0.1", "10.3.0.1")
    assert [home.files.accounts.is_white(host) for host in hosts] == [True, True, True, False]
    assert home.versions == (1, {"acl/more.yml": 1, "plain_acl.yml": 1})
    assert home.files.listed.global_white_addrs == ["10.2.0.1", "10.0.0.*", "10.1.0.1"]
    home.set_white("", default)
    assert not home.files.accounts.is_white("10.0.0.7")


@pytest.mark.parametrize(
    ("addresses", "path", "remark"),
    [
        (None, None, "The globalWhiteAddresses[null] has been updated failed."),
        *(
            ("1.1.1.1", path, "The globalWhiteAddresses[1.1.1.1] has been updated failed.")
            for path in (
                *("/etc/hosts", "{home}/conf/tools.yml", "{home}/conf/acl/none.yml", "{home}/conf/acl"),
                *("{home}/conf/acl/../../x", "plain_acl.yml", "a\0b"),
            )
        ),
        ("1.1.1", None, "Netaddress examine Exception netaddress is 1.1.1"),
        ("1.1.1.1, 1.1.1.2", None, "Netaddress examine Exception netaddress is  1.1.1.2"),
    ],
)
def test_white_addresses_that_are_refused(home: Home, addresses: str | None, path: str | None, remark: str) -> None:
    home.write("plain_acl.yml", text_of("account-1"))
    home.write("tools.yml", text_of("account-2"))
    home.write("acl/more.yml", "")
    home.files.load()
    with pytest.raises(RequestRefused) as refused:
        home.set_white(addresses, None if path is None else path.format(home=home.conf.parent))
    assert refused.value.response_code == 211 and refused.value.remark == remark
    assert home.files.poll() is None


def test_listed_accounts_have_no_secrets_and_no_doubles(home: Home) -> None:
    home.write("plain_acl.yml", text_of("account-1", "everywhere"))
    home.write("acl/more.yml", text_of("everywhere", "account-2", more="  admin: true\n"))
    home.files.load()
    listed = home.files.listed.plain_access_configs
    assert [account.access_key for account in listed] == ["everywhere", "account-2", "account-1"]
    assert SECRET.encode() not in home.files.listed.encode()


def test_a_directory_that_cannot_be_read_keeps_all(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("plain_acl.yml", text_of("account-1"))
    home.files.load()

    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    (home.conf / "acl").mkdir()
    assert home.files.poll() is None and home.keys == {"account-1"}
    assert "Permission denied" in home.files.failing[home.conf / "acl"]
    with pytest.raises(ConfigError, match=r"conf/acl: aclEnable: cannot be read: Permission denied; .* \(chown\)$"):
        AclFiles(home.conf.parent, now_ms=lambda: 0).load()
    monkeypatch.undo()
    home.files.poll()
    assert not home.files.failing


def test_the_log_names_files_and_numbers(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    home.write("plain_acl.yml", text_of("account-1") + "  topicPerm: []\n")
    home.files.load()
    assert "read 1 accounts from" in caplog.text and "did you mean topicPerms?" in caplog.text
