"""Mail by STARTTLS and by TLS with a login, to a real SMTP server; a server that is not trusted gets no password."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword

from rocketpy.console.alarm_file import Mail
from rocketpy.console.notices import NoticeFailed, send_mail
from tests.support.broker import free_ports
from tests.support.certificates import Authority
from tests.unit.console.test_notices import CONDITION, NOTICE

USER, PASSWORD = "console", "the password of the console"


@attrs.define
class Server:
    """An SMTP server that takes mail by TLS from who has logged in."""

    authority: Authority
    security: str
    tried: list[tuple[bytes, bytes]] = attrs.field(factory=list)  # user and password of each login
    mails: list[tuple[str, list[str], bytes, bool]] = attrs.field(factory=list)  # sender, addresses, mail, is by TLS

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        is_encrypted = session.ssl is not None or self.security == "tls"
        self.mails.append(
            (envelope.mail_from, envelope.rcpt_tos, envelope.content, is_encrypted and session.authenticated)
        )
        return "250 taken"

    def authenticate(self, server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        self.tried.append((data.login, data.password))
        is_known = (data.login, data.password) == (USER.encode(), PASSWORD.encode())
        return AuthResult(success=is_known, handled=is_known)

    @contextlib.contextmanager
    def serving(self) -> Iterator[Mail]:
        """Serve, and yield the settings of who sends mail here."""
        issued = self.authority.issue()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.certificate, issued.key)
        port = free_ports()[0]
        tls: dict[str, Any] = {"tls_context": context, "require_starttls": True, "auth_required": True}
        if self.security == "tls":
            tls = {"ssl_context": context, "auth_require_tls": False}  # it is there from the first byte
        controller = Controller(
            self,
            hostname="127.0.0.1",
            port=port,
            **tls,
            authenticator=self.authenticate,
            ready_timeout=60.0,  # the machine may be busy
        )
        controller.start()
        try:
            to = ("a@example.com", "b@example.com")
            yield Mail("127.0.0.1", port, "c@example.com", to, self.security, 10.0, USER, PASSWORD)
        finally:
            controller.stop()


@pytest.fixture(params=["starttls", "tls"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    return Server(authority, request.param)


def test_a_mail_goes_encrypted_and_with_a_login(server: Server) -> None:
    with server.serving() as mail:
        send_mail(mail, NOTICE)
    ((sender, to, content, is_safe),) = server.mails
    assert (sender, to, is_safe) == ("c@example.com", ["a@example.com", "b@example.com"], True)
    assert CONDITION.text.encode() in content.replace(b"\r\n ", b" ")
    assert server.tried == [(USER.encode(), PASSWORD.encode())]


def test_a_wrong_password_is_a_failure_that_does_not_tell_it(server: Server) -> None:
    with server.serving() as mail, pytest.raises(NoticeFailed, match="535") as failure:
        send_mail(attrs.evolve(mail, password="wrong secret"), NOTICE)
    assert server.mails == []
    assert "wrong secret" not in str(failure.value)


def test_a_server_that_is_not_trusted_gets_no_password(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path / "other").ca_file))
    with server.serving() as mail, pytest.raises(NoticeFailed, match="certificate verify failed"):
        send_mail(mail, NOTICE)
    assert (server.tried, server.mails) == ([], [])
    with server.serving() as mail, pytest.raises(NoticeFailed, match="certificate verify failed"):
        send_mail(attrs.evolve(mail, host="localhost"), NOTICE)
    assert (server.tried, server.mails) == ([], [])
