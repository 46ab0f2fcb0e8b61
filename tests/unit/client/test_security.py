"""Credentials and TLS: what each place gives, and what each wrong one says; the port of vip_channel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy import aio
from rocketpy.client import (
    START_FIRST,
    ClientOptions,
    ConsumeResult,
    Credentials,
    ProducerOptions,
    PushOptions,
    TlsOptions,
)
from rocketpy.client.security import SecuritySettings, read_credentials
from rocketpy.codes import RequestCode
from rocketpy.errors import ConfigError
from rocketpy.remoting.abc import Channel
from rocketpy.remoting.command import RemotingCommand
from tests.support.clients import push_consumer
from tests.support.cluster import FakeBroker, FakeCluster, run
from tests.support.push_consumers import Seen, store


def test_a_client_without_options_has_those_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (ProducerOptions().credentials, ProducerOptions().tls) == (None, None)
    for name, value in {"ACCESS_KEY": "shop", "SECRET_KEY": "s3cret", "SECURITY_TOKEN": "t"}.items():
        monkeypatch.setenv(f"ROCKETPY_{name}", value)
    monkeypatch.setenv("ROCKETMQ_TLS_CA", "/ca")
    assert (PushOptions().credentials, PushOptions().tls) == (Credentials("shop", "s3cret", "t"), None)
    assert "s3cret" not in repr(SecuritySettings.from_environment()) + repr(PushOptions())
    monkeypatch.setenv("ROCKETMQ_TLS", "true")
    monkeypatch.setenv("ROCKETMQ_TLS_KEY_PASSWORD", "p")
    assert ClientOptions().tls == TlsOptions(ca_file=Path("/ca"), key_password="p")
    monkeypatch.setenv("ROCKETMQ_TLS_INSECURE", "1")
    assert ClientOptions().tls == TlsOptions(ca_file=Path("/ca"), key_password="p", verify=False)
    assert ClientOptions(credentials=None, tls=None).tls is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tools.yml", 'accessKey: "a"\nsecretKey: k=v\n'),
        ("keys", "# of the shop\naccessKey = a\nsecretKey=k=v\n"),
        ("key", "AccessKey=a\nSecretKey=k=v\n"),
    ],
)
def test_a_file_of_credentials(name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name
    file.write_text(text)
    assert read_credentials(file) == Credentials("a", "k=v")
    monkeypatch.setenv("ROCKETPY_CREDENTIALS_FILE", str(file))
    assert ClientOptions().credentials == Credentials("a", "k=v")


def written(text: bytes, name: str = "keys") -> Callable[[Path], dict[str, str]]:
    def write(path: Path) -> dict[str, str]:
        (path / name).write_bytes(text)
        return {"ROCKETPY_CREDENTIALS_FILE": str(path / name)}

    return write


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"ROCKETPY_ACCESS_KEY": "a"},
            "ROCKETPY_SECRET_KEY: is missing: an access key and a secret key belong together",
        ),
        ({"ROCKETPY_SECRET_KEY": "k"}, "ROCKETPY_ACCESS_KEY: is missing"),
        ({"ROCKETPY_SECURITY_TOKEN": "t"}, "ROCKETPY_ACCESS_KEY: is missing"),
        (
            {"ROCKETPY_ACCESS_KEY": "a", "ROCKETPY_SECRET_KEY": "k", "ROCKETPY_CREDENTIALS_FILE": "/f"},
            "ROCKETPY_ACCESS_KEY: credentials come from one place: remove this or ROCKETPY_CREDENTIALS_FILE",
        ),
        ({"ROCKETPY_CREDENTIALS_FILE": "/nowhere/f"}, "ROCKETPY_CREDENTIALS_FILE /nowhere/f: cannot be read on this"),
        (written(b"accessKey=a\n"), "keys: secretKey: is missing"),
        (written(b"accessKey=\xff s3cret"), "keys: is no text in UTF-8"),
        (written(b"accessKey: a\n", "tools.yml"), "tools.yml: needs two lines, accessKey: … and secretKey: …"),
        (written(b"- s3cret\n", "tools.yml"), "expected `key: value` lines"),
        ({"ROCKETMQ_TLS": "maybe"}, 'ROCKETMQ_TLS: "maybe" is neither true nor false'),
        ({"ROCKETMQ_TLS": "true", "ROCKETMQ_TLS_KEY": "/k"}, "ROCKETMQ_TLS_KEY: needs ROCKETMQ_TLS_CERT, too"),
        (
            {"NAMESRV_ADDR": "localhost"},
            "name_servers (-n, NAMESRV_ADDR): 'localhost' is no list of name servers: write",
        ),
        ({"NAMESRV_ADDR": "a:1;b:99999"}, "write host:port;host:port, as 127.0.0.1:9876"),
    ],
)
def test_a_wrong_variable_names_itself_and_the_remedy(
    given: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (given if isinstance(given, dict) else given(tmp_path)).items():
        monkeypatch.setenv(name, value)
    with pytest.raises((ConfigError, ValueError)) as caught:
        ClientOptions()
    assert message in str(caught.value) and "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_ca_file": Path("/ca")}, "caFile: has no effect without tls"),
        ({"tls_verify": False}, "tls_verify: has no effect without tls"),
        ({"tls": True, "tls_key_file": Path("/k")}, "tls_key_file: needs tls_cert_file, too"),
        ({"credentials_env": "MQ"}, "MQ_ACCESS_KEY: is missing"),
        ({"credentials_env": "MQ", "access_key": "a"}, "account: credentials come from one place: remove this or"),
    ],
)
def test_settings_are_named_as_their_user_knows_them(given: dict[str, Any], message: str) -> None:
    names = {"tls_ca_file": "caFile", "access_key": "account"}
    with pytest.raises(ConfigError) as caught:
        SecuritySettings(**given, names=names).credentials()
    assert str(caught.value).startswith(message)


def test_a_key_without_its_certificate() -> None:
    with pytest.raises(ValueError, match=r"TlsOptions\.key_file needs certificate_file, too"):
        TlsOptions(key_file=Path("/k"))


class SecondPort(FakeBroker):
    """Another port of a broker; its own requests are those that came there."""

    def __init__(self, address: str, broker: FakeBroker) -> None:
        super().__init__(address)
        self._broker = broker

    async def process(self, request: RemotingCommand, channel: Channel) -> RemotingCommand | None:
        self.requests.append(request)
        return await self._broker.process(request, channel)


@pytest.mark.usefixtures("backend")
def test_requests_of_a_consumer_use_the_vip_port_and_pulls_do_not() -> None:
    """The callers of `MixAll.brokerVIPChannel` in RocketMQ 4.9."""

    async def scenario(cluster: FakeCluster) -> None:
        broker = cluster.add_broker(T=1)
        vip = cluster.brokers["vip"] = SecondPort("10.0.0.1:10909", broker)
        store(broker, b"1", b"2")
        seen = Seen(ConsumeResult.retry())
        settings: dict[str, Any] = {"vip_channel": True, "start": START_FIRST}
        async with push_consumer(cluster, seen, **settings):
            await aio.sleep(6)
        async with push_consumer(cluster, seen, group="ordered", ordered=True, **settings):
            await aio.sleep(6)
        wanted = (
            *(RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.QUERY_CONSUMER_OFFSET),
            *(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.CONSUMER_SEND_MSG_BACK),
            *(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ),
        )
        for code in wanted:
            assert vip.got(code) and len(vip.got(code)) == len(broker.got(code)), code.name
        for code in (RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT):
            assert broker.got(code) and not vip.got(code), code.name

    run(scenario)


def test_a_producer_within_a_client_has_its_options_and_not_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_ACCESS_KEY", "half of an account")
    options = PushOptions(name_servers="n:1", credentials=Credentials("a", "k"), tls=None, vip_channel=True)
    inner = ProducerOptions.of_client(options)
    assert (inner.name_servers, inner.credentials, inner.vip_channel) == ("n:1", Credentials("a", "k"), True)


def test_equal_options_are_one_key() -> None:
    """Fault: Spark keeps one client for equal options, and could not once they had no hash."""
    one, same = (PushOptions(name_servers="n:1", credentials=Credentials("a", "k"), tls=TlsOptions()) for _ in range(2))
    assert len({one: 1, same: 2, PushOptions(name_servers="m:1"): 3}) == 2
