from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rocketpy.console.settings import ConsoleSettings, is_loopback
from rocketpy.errors import ConfigError
from tests.support.cases import cases


@cases(
    "given, fault",
    [
        ({"bind": "0.0.0.0"}, "--bind 0.0.0.0 lets other hosts in, and there is no login"),
        ({"bind": "console.example.com"}, "there is no login"),
        ({"bind": "::"}, "there is no login"),
        ({"allow_changes": True}, "--allow-changes needs a login"),
        ({"certificate": Path("c")}, "--certificate and --key belong together"),
        ({"proxies": ("127.0.0.1", "proxy.example.com")}, "--proxy: 'proxy.example.com' does not appear to be an IPv4"),
        ({"proxies": ("10.0.0.1/8",)}, "--proxy: 10.0.0.1/8 has host bits set"),
        ({"proxies": ("0.0.0.0/0",)}, "--proxy 0.0.0.0/0 trusts every client"),
        ({"proxies": ("::/0",)}, "--proxy ::/0 trusts every client"),
    ],
)
def test_what_would_open_the_console_is_refused(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refused:
        ConsoleSettings(**given)
    assert "\n" not in str(refused.value)


@cases(
    "host, is_local",
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)],
)
def test_loopback(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_hosts_that_a_request_may_name() -> None:
    assert ConsoleSettings().allowed_hosts == {"localhost", "127.0.0.1", "::1"}
    hosts = ConsoleSettings(bind="10.0.0.1", accounts=Path("a"), hosts=("Console.Example.com",)).allowed_hosts
    assert {"10.0.0.1", "console.example.com"} <= hosts


def test_secrets_in_clear_are_noticed() -> None:
    assert ConsoleSettings(bind="10.0.0.1", accounts=Path("a")).is_secret_in_clear
    own = ConsoleSettings(bind="10.0.0.1", accounts=Path("a"), certificate=Path("c"), key=Path("k"))
    assert not own.is_secret_in_clear
