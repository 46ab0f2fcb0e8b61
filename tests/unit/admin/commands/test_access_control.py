"""Commands about accounts against a scripted cluster: what is asked of whom, what is printed."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.acl.files import AclFiles
from rocketpy.admin.commands import REGISTRY
from rocketpy.admin.connection import tool_credentials
from rocketpy.client.security import SecuritySettings
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ConfigError
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.bodies.acl import AclConfig, PlainAccessConfig
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.acl import CreateAccessConfigRequestHeader, DeleteAccessConfigRequestHeader
from rocketpy.remoting.signature import Credentials, is_signed
from tests.support.admin import Mqadmin, Script
from tests.support.cluster import FakeCluster

MASTER, SECOND = "10.0.0.1:10911", "10.0.0.2:10911"
SECRET = "only-for-tests"
ACCOUNT = ("-a", "shop-orders", "-s", SECRET)


@pytest.fixture
def files(tmp_path: Path) -> AclFiles:
    found = AclFiles(tmp_path, now_ms=lambda: 1709288551127)
    found.load()
    return found


def served_by(files: AclFiles, brokers: int = 1) -> Script:
    """Brokers that share these files."""

    def update(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        files.update_account(CreateAccessConfigRequestHeader.of(request))
        return RemotingCommand.response()

    def delete(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        files.delete_account(DeleteAccessConfigRequestHeader.of(request))
        return RemotingCommand.response()

    def versions(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        header = files.version_header(broker_name="broker-a", broker_addr=MASTER, cluster_name="DefaultCluster")
        return RemotingCommand.response(header=header)

    def script(cluster: FakeCluster) -> None:
        for number in range(brokers):
            broker = cluster.add_broker(f"broker-{number}")
            broker.answers[RequestCode.UPDATE_AND_CREATE_ACL_CONFIG] = update
            broker.answers[RequestCode.DELETE_ACL_CONFIG] = delete
            broker.answers[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = versions
            broker.answer(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, files.listed)

    return script


def test_an_account_is_created_on_every_broker(mqadmin: Mqadmin, files: AclFiles) -> None:
    words = ("-i", "DENY", "-u", "SUB", "-t", "a=PUB,b=SUB", "-g", "g=SUB", "-w", "10.0.0.*", "-m", "true")
    lines = mqadmin("updateAclConfig", "-c", "DefaultCluster", *ACCOUNT, *words, script=served_by(files, 2))
    assert lines == [
        f"create or update plain access config to {MASTER} success.",
        f"create or update plain access config to {SECOND} success.",
        "PlainAccessConfig [accessKey=shop-orders, whiteRemoteAddress=10.0.0.*, admin=true, defaultTopicPerm=DENY, "
        "defaultGroupPerm=SUB, topicPerms=a=PUB,b=SUB, groupPerms=g=SUB]",
    ]
    account = files.accounts.by_key["shop-orders"]
    assert account.is_admin and account.secret_key == SECRET and account.white_addresses.has("10.0.0.7")
    mqadmin("updateAclConfig", "-b", MASTER, *ACCOUNT, script=served_by(files))
    changed = files.accounts.by_key["shop-orders"]
    assert not changed.is_admin and changed.permissions == account.permissions


def test_accounts_are_listed_and_deleted(mqadmin: Mqadmin, files: AclFiles) -> None:
    mqadmin("updateAclConfig", "-b", MASTER, *ACCOUNT, "-t", "a=PUB,b=SUB", script=served_by(files))
    for name in ("getAclConfig", "getAccessConfigSubCommand"):
        assert mqadmin(name, "-b", MASTER, script=served_by(files)) == [
            *("", "globalWhiteRemoteAddresses: []", "", "accounts:"),
            "  accessKey         : shop-orders",
            "  secretKey         :",
            "  whiteRemoteAddress:",
            "  admin             : false",
            "  defaultTopicPerm  :",
            "  defaultGroupPerm  :",
            "  topicPerms        : [a=PUB, b=SUB]",
            "  groupPerms        :",
            "",
        ]
    rows = [
        json.loads(row) for row in mqadmin("getAclConfig", "-b", MASTER, "--output", "json", script=served_by(files))
    ]
    assert rows[0]["topicPerms"] == ["a=PUB", "b=SUB"] and rows[1]["global_white_addrs"] == []
    for name in ("deleteAclConfig", "deleteAccessConfig"):
        status = 0 if name == "deleteAclConfig" else 1
        lines = mqadmin(name, "-b", MASTER, "-a", "shop-orders", script=served_by(files), status=status)
    assert lines == [] and "The accesskey[shop-orders] corresponding to accessConfig" in mqadmin.error


def test_versions_of_files(mqadmin: Mqadmin, files: AclFiles) -> None:
    mqadmin("updateAclConfig", "-b", MASTER, *ACCOUNT, script=served_by(files))
    lines = mqadmin("clusterAclConfigVersion", "-c", "DefaultCluster", script=served_by(files))
    titles = ("#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath", "#AclConfigVersionNum")
    columns = [title.ljust(width) for title, width in zip(titles, (16, 22, 22, 20, 22), strict=True)]
    assert lines[0] == "  ".join([*columns, "#AclLastUpdateTime"])
    assert lines[1].split()[:3] == ["DefaultCluster", "broker-a", MASTER]
    assert lines[1].split()[3:5] == [str(files.default_file), "1"] and "2024-03-01" in lines[1]
    assert lines[2] == "get cluster's plain access config version success."
    lines = mqadmin("clusterAclConfigVersion", "-b", MASTER, script=served_by(files))
    assert len(lines) == 2 and lines[1] == "get broker's plain access config version success."


@pytest.mark.parametrize("path", [None, "/opt/conf/acl/more.yml"])
def test_white_addresses(mqadmin: Mqadmin, path: str | None) -> None:
    asked: list[dict[str, str]] = []

    def script(cluster: FakeCluster) -> None:
        def answer(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            asked.append(request.ext_fields or {})
            return RemotingCommand.response()

        cluster.add_broker().answers[RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG] = answer

    words = () if path is None else ("-p", path)
    lines = mqadmin("updateGlobalWhiteAddr", "-b", MASTER, "-g", "10.0.0.*,10.0.1.1", *words, script=script)
    assert lines == [f"update global white remote addresses to {MASTER} success."]
    assert asked == [{"globalWhiteAddrs": "10.0.0.*,10.0.1.1"} | ({} if path is None else {"aclFileFullPath": path})]


def test_exactly_one_of_broker_and_cluster(mqadmin: Mqadmin, files: AclFiles) -> None:
    options = {
        "updateAclConfig": ACCOUNT,
        "deleteAclConfig": ("-a", "shop-orders"),
        "getAclConfig": (),
        "clusterAclConfigVersion": (),
        "updateGlobalWhiteAddr": ("-g", "10.0.0.*"),
    }
    assert {name for name, entry in REGISTRY.items() if entry.module == "access_control"} == set(options)
    for name, words in options.items():
        mqadmin(name, *words, script=served_by(files), status=2)
        mqadmin(name, "-b", MASTER, "-c", "DefaultCluster", *words, script=served_by(files), status=2)


@pytest.mark.parametrize("versions", ["[]", "{", '{"f":1}', "null"])
def test_an_answer_that_is_none_is_an_error(mqadmin: Mqadmin, files: AclFiles, versions: str) -> None:
    def script(cluster: FakeCluster) -> None:
        header = files.version_header(broker_name="b", broker_addr="a", cluster_name="c")
        header.all_acl_file_version = versions
        broker = cluster.add_broker()
        broker.answers[RequestCode.GET_BROKER_CLUSTER_ACL_INFO] = lambda *_: RemotingCommand.response(header=header)

    mqadmin("clusterAclConfigVersion", "-b", MASTER, script=script, status=1)
    assert mqadmin.error.startswith("error: ") and mqadmin.error.count("\n") == 1


def test_secrets_are_in_no_log(mqadmin: Mqadmin, files: AclFiles, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    lines = mqadmin("updateAclConfig", "-b", MASTER, *ACCOUNT, "-t", "x", script=served_by(files), status=1)
    lines += mqadmin("updateAclConfig", "-b", MASTER, *ACCOUNT, "--output", "json", script=served_by(files))
    assert SECRET not in "".join(lines) + mqadmin.error + caplog.text
    header = CreateAccessConfigRequestHeader(access_key="shop-orders", secret_key=SECRET)
    listed = AclConfig(plain_access_configs=[PlainAccessConfig(access_key="shop-orders", secret_key=SECRET)])
    assert SECRET not in repr(header) + repr(listed)


@pytest.fixture
def write_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Write conf/tools.yml of $ROCKETMQ_HOME."""
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    (tmp_path / "conf").mkdir()
    return lambda data: void((tmp_path / "conf" / "tools.yml").write_bytes(data))


def void(_: object) -> None:
    """For lambdas."""


@pytest.mark.parametrize(
    "data",
    [
        b"accessKey: rocketmq2\nsecretKey: 12345678\n",
        b"\xef\xbb\xbfaccessKey: rocketmq2 # of the broker\r\nsecretKey: '12345678' # quoted\r\n",
        b'{"accessKey": " rocketmq2 ", "secretKey": "12345678", "other": [1]}',
    ],
)
def test_credentials_of_tools(write_tools: Callable[[bytes], None], data: bytes) -> None:
    write_tools(data)
    assert tool_credentials(SecuritySettings()) == Credentials("rocketmq2", "12345678")


@pytest.mark.parametrize("data", [None, b"", b"accessKey: rocketmq2\n", b"accessKey: ' '\nsecretKey: x\n", b"a: b\n"])
def test_no_credentials(write_tools: Callable[[bytes], None], data: bytes | None) -> None:
    if data is not None:
        write_tools(data)
    assert tool_credentials(SecuritySettings()) is None


def test_tools_that_cannot_be_understood_are_an_error(
    write_tools: Callable[[bytes], None], mqadmin: Mqadmin, files: AclFiles
) -> None:
    write_tools(b"accessKey: rocketmq2\nsecretKey: [12345678]\n")
    with pytest.raises(ConfigError, match=r"tools\.yml:2: secretKey: expected a text"):
        tool_credentials(SecuritySettings())
    assert mqadmin("getAclConfig", "-b", MASTER, script=served_by(files), status=1) == []
    assert "tools.yml:2: secretKey" in mqadmin.error and "12345678" not in mqadmin.error


def test_requests_are_signed_with_them(write_tools: Callable[[bytes], None], mqadmin: Mqadmin) -> None:
    write_tools(b"accessKey: rocketmq2\nsecretKey: 12345678\n")
    asked: list[RemotingCommand] = []

    def script(cluster: FakeCluster) -> None:
        def refuse(request: RemotingCommand, channel: Channel) -> RemotingCommand:
            asked.append(request)
            return RemotingCommand.response(ResponseCode.SYSTEM_ERROR, "No acl config for rocketmq2")

        cluster.add_broker().answers[RequestCode.DELETE_ACL_CONFIG] = refuse

    mqadmin("deleteAclConfig", "-b", MASTER, "-a", "shop-orders", script=script, status=1)
    assert is_signed(asked[0], "12345678") and asked[0].ext_field("AccessKey") == "rocketmq2"
    assert "No acl config for rocketmq2" in mqadmin.error
