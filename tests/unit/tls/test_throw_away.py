"""The certificate for tests: made only where it is asked for, and checked by nobody."""

from __future__ import annotations

import sys

import pytest

from rocketpy.errors import ConfigError, TlsFailed
from rocketpy.tls import Certificates, TlsSession, client_context, server_context
from tests.support.certificates import HOST, Authority, converse, tls_config

TEST_MODE = {"tls.server.mode": "permissive", "tls.test.mode.enable": "true"}


def test_clients_in_test_mode_take_it_and_others_do_not() -> None:
    server = server_context(tls_config(TEST_MODE))
    converse(TlsSession.client(client_context(tls_config(TEST_MODE)), HOST), TlsSession.server(server))
    with pytest.raises(TlsFailed, match="self-signed certificate"):
        converse(TlsSession.client(client_context(tls_config()), HOST), TlsSession.server(server))


def test_each_server_has_its_own_and_it_does_not_expire() -> None:
    one, other = (Certificates.of_server(tls_config(TEST_MODE)) for _ in range(2))
    assert one.context is not other.context and one.days_left(0) is None and not one.has_changed()


def test_a_given_certificate_is_used(tmp_path_factory: pytest.TempPathFactory) -> None:
    authority = Authority(tmp_path_factory.mktemp("tls"))
    server = server_context(tls_config(TEST_MODE, authority.issue().settings()))
    converse(TlsSession.client(client_context(tls_config(authority.trusting())), HOST), TlsSession.server(server))


def test_without_the_package_one_line_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigError, match=r"pip install 'rocketpy-mq\[tls\]', or set tls\.server\.certPath"):
        server_context(tls_config(TEST_MODE))
