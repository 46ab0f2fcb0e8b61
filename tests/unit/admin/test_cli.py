"""mqadmin's command line itself: its list and help load little, wrong usage and errors are one line."""

from pathlib import Path
from typing import Any

import pytest

from rocketpy.admin.admin import Admin
from rocketpy.admin.base import Environment
from rocketpy.admin.cli import main
from rocketpy.admin.commands import REGISTRY
from rocketpy.client.options import TlsOptions
from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import ClientError
from rocketpy.remoting.signature import Credentials
from tests.support.admin import Mqadmin, one_broker
from tests.support.cases import cases
from tests.support.cluster import NAME_SERVER, FakeCluster

WITH_A_FILE = {"switchMaster", "haElect", "haConfigure"}  # they reach etcd by the file of a broker


@pytest.mark.parametrize("arguments", [[], ["help"], ["--help"]])
def test_the_list_of_commands_imports_none_of_them(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in REGISTRY)


@cases("name", REGISTRY)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Holds: admin, mqadmin."""
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    example = f"mqadmin {name} {'-f' if name in WITH_A_FILE else '-n'}"
    assert example in printed
    assert "--namesrvAddr" in printed
    assert main(["help", name.upper()]) == 0
    assert example in capsys.readouterr().out


def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bogus"]) == 2
    assert "The sub command bogus not exist." in capsys.readouterr().err
    assert main(["topicRoute"]) == 2
    assert "'-t'" in capsys.readouterr().err


def test_errors_are_one_line(mqadmin: Mqadmin) -> None:
    def unreachable(cluster: FakeCluster) -> None:
        cluster.name_server.unreachable = True

    assert mqadmin("topicList", script=unreachable, status=1) == []
    assert mqadmin.error.count("\n") == 1 and NAME_SERVER in mqadmin.error


def test_a_server_of_the_other_kind(mqadmin: Mqadmin) -> None:
    """Fault: With a broker's address for -n mqadmin said `request type 106 not supported`, and no more."""

    def script(cluster: FakeCluster) -> None:
        cluster.name_server.refuse(RequestCode.GET_BROKER_CLUSTER_INFO, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    mqadmin("clusterList", script=script, status=1)
    assert mqadmin.error.endswith(
        f"; is {NAME_SERVER} of the right kind? -n takes name servers (port 9876), -b takes brokers (port 10911)\n"
    )


def test_a_group_that_no_member_has_made(mqadmin: Mqadmin) -> None:
    """Fault: The error named a topic that the operator had not: %RETRY%nobody."""
    mqadmin("consumerConnection", "-g", "nobody", script=one_broker, status=4)
    assert "group nobody has never had a member, or has another name: mqadmin consumerProgress" in mqadmin.error


def test_traces_without_a_trace_topic(mqadmin: Mqadmin) -> None:
    mqadmin("queryMsgTraceById", "-i", "ID", script=one_broker, status=4)
    assert "set traceTopicEnable=true on one broker, and trace=True in clients" in mqadmin.error


def test_spellings(mqadmin: Mqadmin) -> None:
    for spelling in (["-t", "T"], ["-tT"], ["--topic", "T"], ["--topic=T"]):
        assert mqadmin("TOPICCLUSTERLIST", *spelling, script=one_broker) == ["DefaultCluster"]


def settings_of(words: list[str]) -> dict[str, Any]:
    """The settings of the client that a command line makes; the command does not run."""
    given: list[dict[str, Any]] = []

    def make_admin(**settings: Any) -> Admin:
        given.append(settings)
        raise ClientError("no more is wanted")

    assert main([*words, "-n", NAME_SERVER], environment=Environment(make_admin=make_admin)) == 1
    return given[0]


@pytest.mark.parametrize(
    ("words", "environ", "options"),
    [
        ([], {}, None),
        ([], {"ROCKETMQ_TLS_CA": "/ca"}, None),
        (["--tls"], {}, TlsOptions()),
        (["--tls", "--tls-insecure"], {}, TlsOptions(verify=False)),
        ([], {"ROCKETMQ_TLS": "true", "ROCKETMQ_TLS_CA": "/ca"}, TlsOptions(ca_file=Path("/ca"))),
        ([], {"ROCKETMQ_TLS": "true", "ROCKETMQ_TLS_INSECURE": "true"}, TlsOptions(verify=False)),
        ([], {"ROCKETMQ_TLS": "false", "ROCKETMQ_TLS_INSECURE": "true"}, None),
        (
            ["--tls", "--tls-cert", "/c", "--tls-key", "/k"],
            {"ROCKETMQ_TLS_KEY_PASSWORD": "secret"},
            TlsOptions(certificate_file=Path("/c"), key_file=Path("/k"), key_password="secret"),
        ),
    ],
)
def test_tls_stands_before_the_command_or_behind_it(
    words: list[str], environ: dict[str, str], options: TlsOptions | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in environ.items():
        monkeypatch.setenv(key, value)
    for line in ([*words, "clusterList"], ["clusterList", *words], [*words[:1], "clusterList", *words[1:]]):
        assert settings_of(line).get("tls") == options
    assert "secret" not in repr(options)


def test_options_behind_the_command_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_TLS_CA", "/environment")
    before = ["--tls", "--tls-ca", "/before", "clusterList"]
    assert settings_of(before)["tls"] == TlsOptions(ca_file=Path("/before"))
    assert settings_of([*before, "--tls-ca", "/behind"])["tls"] == TlsOptions(ca_file=Path("/behind"))


def test_the_certificate_of_an_option_belongs_to_the_key_of_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: The look for an account in the environment refused a key without a certificate."""
    monkeypatch.setenv("ROCKETMQ_TLS", "true")
    monkeypatch.setenv("ROCKETMQ_TLS_KEY", "/key")
    made = settings_of(["clusterList", "--tls-cert", "/certificate"])
    assert made["tls"] == TlsOptions(certificate_file=Path("/certificate"), key_file=Path("/key"))


def test_credentials_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "account.yml"
    file.write_text("accessKey: shop\nsecretKey: '12345678'\n")
    for words in (["--credentials", str(file), "clusterList"], ["clusterList", "--credentials", str(file)]):
        assert settings_of(words)["credentials"] == Credentials("shop", "12345678")
    monkeypatch.setenv("ROCKETPY_CREDENTIALS_FILE", str(file))
    assert settings_of(["clusterList"])["credentials"] == Credentials("shop", "12345678")
    file.write_text("accessKey: shop\n")
    assert main(["clusterList"]) == 1
    assert f"{file}: needs two lines, accessKey" in capsys.readouterr().err
    file.unlink()
    assert main(["clusterList"]) == 1
    assert f"ROCKETPY_CREDENTIALS_FILE {file}: cannot be read" in capsys.readouterr().err
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "shop")  # as for clients, no variable wins over another
    assert main(["clusterList"]) == 1
    assert "remove this or ROCKETPY_CREDENTIALS_FILE" in capsys.readouterr().err


@cases("name", REGISTRY)
def test_every_command_has_the_options_of_tls_and_credentials(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(option in printed for option in ("--tls ", "--tls-ca", "--tls-cert", "--tls-key", "--credentials"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tls-ca", "/ca"], "has no effect without --tls"),
        (["--tls-insecure"], "has no effect without --tls"),
        (["--tls", "--tls-key", "/k"], "--tls-key: needs --tls-cert"),
    ],
)
def test_options_of_tls_that_have_no_effect(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ([*words, "clusterList"], ["clusterList", *words]):
        assert main(line) == 2
        assert message in capsys.readouterr().err
