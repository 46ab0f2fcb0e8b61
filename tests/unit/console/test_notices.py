"""Notices over real sockets: what webhooks and mail servers get, and what happens when they are slow or gone."""

from __future__ import annotations

import contextlib
import email
import email.policy
import http.server
import json
import smtplib
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from rocketpy import aio
from rocketpy.console import notices as module
from rocketpy.console.alarm_file import AlarmSettings, Mail, Webhook
from rocketpy.console.alarms import Change, Condition, Notice
from rocketpy.console.notices import WAITING_MAX, NoticeFailed, Notifier, mail_of, post, send_mail

CONDITION = Condition(
    "backlog", "billing", "group billing: 11 messages not consumed, limit 10", 11, 10, "/group?name=x"
)
LINES = 200  # of a greeting
NOTICE = Notice(
    Change.RAISED, CONDITION, 1_700_000_000_000, 1_700_000_060_000, "https://console.example.com/group?name=x"
)


@contextlib.contextmanager
def serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """A server on a free port of this machine."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@attrs.define
class Hook:
    """What webhooks got, and what they answer."""

    got: list[tuple[str, dict[str, str], Any]] = attrs.field(factory=list)
    statuses: list[int] = attrs.field(factory=lambda: [204])

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.got.append((self.path, dict(self.headers), json.loads(body)))
                status = hook.statuses[min(len(hook.got), len(hook.statuses)) - 1]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                """Nothing on standard error."""

        return Handler


def test_a_webhook_gets_the_numbers_and_a_link() -> None:
    hook = Hook()
    with serving(hook.handler()) as port:
        post(Webhook(f"http://127.0.0.1:{port}/hook?a=b", authorization="Bearer abc"), NOTICE)
    ((path, headers, told),) = hook.got
    assert (path, headers["Authorization"]) == ("/hook?a=b", "Bearer abc")
    assert (told["state"], told["kind"], told["subject"], told["value"], told["limit"]) == (
        *("raised", "backlog", "billing"),
        *(11, 10),
    )
    assert told["link"] == NOTICE.link


def test_a_redirect_is_not_followed_and_a_refusal_is_a_failure() -> None:
    hook = Hook(statuses=[302, 500])
    with serving(hook.handler()) as port:
        webhook = Webhook(f"http://127.0.0.1:{port}/")
        with pytest.raises(NoticeFailed, match="status 302, a redirect"):
            post(webhook, NOTICE)
        with pytest.raises(NoticeFailed, match="status 500"):
            post(webhook, NOTICE)
    assert [path for path, _, _ in hook.got] == ["/", "/"]


def test_a_webhook_that_is_gone_or_drips_is_a_failure_within_its_time() -> None:
    class Drip(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.request.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                for _ in range(100):
                    self.request.sendall(b"a")
                    time.sleep(0.1)

    with serving(Drip) as port:
        begun_s = time.monotonic()
        with pytest.raises(NoticeFailed):
            post(Webhook(f"http://127.0.0.1:{port}/", timeout_s=0.5), NOTICE)
        assert time.monotonic() - begun_s < 5
    with pytest.raises(NoticeFailed, match=r"127\.0\.0\.1: "):
        post(Webhook(f"http://127.0.0.1:{port}/"), NOTICE)


def smtp_handler(
    got: list[bytes], *, refuses: bool = False, parting: str = "polite"
) -> type[socketserver.StreamRequestHandler]:
    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 mail.example.com\r\n")
            while line := self.rfile.readline():
                word = line.split()[0].upper()
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = list(iter(self.rfile.readline, b".\r\n"))
                    got.append(b"".join(lines))
                    self.wfile.write(b"250 taken\r\n")
                    if parting == "closes":
                        return
                elif word == b"QUIT" and parting == "drips":
                    with contextlib.suppress(OSError):
                        while True:
                            self.wfile.write(b"2")
                            time.sleep(0.05)
                elif word == b"RCPT" and refuses:
                    self.wfile.write(b"550 no such user\r\n")
                else:
                    self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")

    return Handler


def test_a_mail_has_the_numbers_and_a_link() -> None:
    got: list[bytes] = []
    with serving(smtp_handler(got)) as port:
        send_mail(Mail("127.0.0.1", port, "c@example.com", ("a@example.com", "b@example.com"), "none"), NOTICE)
    (data,) = got
    mail = email.message_from_bytes(data, policy=email.policy.default)
    assert mail["Subject"] == f"[rocketpy] raised: {CONDITION.text}"
    assert mail["To"] == "a@example.com, b@example.com"
    body = mail.get_content()
    for line in ("Value: 11", "Limit: 10", f"Link: {NOTICE.link}", "Raised: Tue, 14 Nov 2023 22:13:20 -0000"):
        assert line in body


def test_a_mail_that_is_refused_or_lacks_tls_is_a_failure() -> None:
    with serving(smtp_handler([], refuses=True)) as port:
        mail = Mail("127.0.0.1", port, "c@example.com", ("a@example.com",), "none")
        with pytest.raises(NoticeFailed, match="no such user"):
            send_mail(mail, NOTICE)
        with pytest.raises(NoticeFailed, match="STARTTLS"):
            send_mail(attrs.evolve(mail, security="starttls"), NOTICE)


@pytest.mark.parametrize(("parting", "timeout_s"), [("closes", 20.0), ("drips", 2.0)])
def test_a_mail_that_was_taken_is_no_failure(parting: str, timeout_s: float) -> None:
    """Fault: A mail that the server had taken was sent three times if the server closed before QUIT."""
    got: list[bytes] = []
    with serving(smtp_handler(got, parting=parting)) as port:
        send_mail(Mail("127.0.0.1", port, "c@example.com", ("a@example.com",), "none", timeout_s=timeout_s), NOTICE)
    assert len(got) == 1


def test_a_greeting_that_drips_is_a_failure_within_its_time() -> None:
    """Fault: A mail server that sent a line of its greeting now and then held the delivery of mail for ever."""
    greeted: list[int] = []

    class Drip(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                for number in range(LINES):
                    self.request.sendall(b"220-wait\r\n")
                    greeted.append(number)
                    time.sleep(0.05)

    with serving(Drip) as port:
        mail = Mail("127.0.0.1", port, "c@example.com", ("a@example.com",), "none", timeout_s=1.0)
        with pytest.raises(NoticeFailed):
            send_mail(mail, NOTICE)
    assert 1 < len(greeted) < LINES


def test_a_reply_without_an_end_is_a_failure_and_not_kept() -> None:
    """Fault: A mail server whose greeting did not end filled the memory of the console for twice the timeout."""
    sent: list[int] = []

    class Flood(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            lines = b"220-" + 1000 * b"x" + b"\r\n"
            with contextlib.suppress(OSError):
                for _ in range(50_000):
                    self.request.sendall(lines)
                    sent.append(len(lines))

    with serving(Flood) as port:
        mail = Mail("127.0.0.1", port, "c@example.com", ("a@example.com",), "none", timeout_s=20)
        with pytest.raises(NoticeFailed, match="replies of more than 1048576 bytes"):
            send_mail(mail, NOTICE)
    assert sum(sent) < 40 << 20, "what is in buffers of the kernel, and no more"


def test_a_connection_that_is_made_after_the_time_is_cut_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: A server that was connected only after the time, for example at its third address, was never cut off."""
    monkeypatch.setattr(module, "CUT_AGAIN_S", 0.01)
    ours, theirs = socket.socketpair()
    connected: list[socket.socket] = []
    is_asked = threading.Event()

    def connection() -> socket.socket | None:
        is_asked.set()
        return connected[0] if connected else None

    with ours, theirs:
        theirs.settimeout(20)
        with pytest.raises(TimeoutError, match="no answer within"), module.cut_off(0.01, connection):
            assert is_asked.wait(20)
            connected.append(ours)
            assert theirs.recv(1) == b""


def test_names_cannot_add_headers_to_a_mail() -> None:
    condition = attrs.evolve(CONDITION, text="broker a\r\nBcc: evil@example.com: no master")
    mail = mail_of(Mail("h", 25, "c@example.com", ("a@example.com",)), attrs.evolve(NOTICE, condition=condition))
    assert mail["Bcc"] is None
    assert "\\r\\nBcc" in mail["Subject"]


def test_a_target_that_fails_twice_gets_the_notice_at_the_third_try(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.01, 0.01))
    hook = Hook(statuses=[500, 500, 200, 500, 500, 500, 200])

    async def main(port: int) -> None:
        notifier = Notifier(AlarmSettings(webhook=Webhook(f"http://127.0.0.1:{port}/")))
        async with aio.open_nursery() as nursery:
            nursery.start_soon(notifier.run)
            for _ in range(3):
                notifier.tell(NOTICE)
            with aio.move_on_after(30):
                while len(hook.got) < 7:
                    await aio.sleep(0.01)
            nursery.cancel()

    with serving(hook.handler()) as port:
        aio.run(main, port)
    assert len(hook.got) == 7
    assert (
        "the webhook did not take a notice: 127.0.0.1: status 500; the notice was: raised: group billing" in caplog.text
    )


def test_an_error_of_a_library_ends_one_notice_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault: An exception of `email` ended the console, its alarms and its other target."""

    def fail(*arguments: Any) -> None:
        raise AttributeError("'InvalidHeaderDefect'")  # as Python 3.11 for the sender console@[, which 3.13 accepts

    monkeypatch.setattr(smtplib.SMTP, "send_message", fail)
    monkeypatch.setattr(module, "PAUSES_S", ())
    hook = Hook(statuses=[204])

    async def main(port: int, mail_port: int) -> None:
        mail = Mail("127.0.0.1", mail_port, "console@example.com", ("operator@example.com",), security="none")
        notifier = Notifier(AlarmSettings(webhook=Webhook(f"http://127.0.0.1:{port}/"), mail=mail))
        async with aio.open_nursery() as nursery:
            nursery.start_soon(notifier.run)
            notifier.tell(NOTICE)
            with aio.move_on_after(30):
                while not (hook.got and "the mail did not take" in caplog.text):
                    await aio.sleep(0.01)
            nursery.cancel()

    with serving(hook.handler()) as port, serving(smtp_handler([])) as mail_port:
        aio.run(main, port, mail_port)
    assert len(hook.got) == 1
    assert "the mail did not take a notice: AttributeError: 'InvalidHeaderDefect'" in caplog.text


def test_notices_that_wait_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        notifier = Notifier(AlarmSettings(webhook=Webhook("http://127.0.0.1:9/")))
        for _ in range(WAITING_MAX + 2):
            notifier.tell(NOTICE)

    aio.run(main)
    assert caplog.text.count("dropped a notice for the webhook") == 2


def test_notices_of_brokers_are_not_dropped_for_those_of_groups(caplog: pytest.LogCaptureFixture) -> None:
    """Fault: A dead broker and 200 backlogs found in one look: the notices of the broker were dropped."""
    broker = attrs.evolve(NOTICE, condition=attrs.evolve(CONDITION, kind="no_master", text="no master of a answers"))
    waited: list[Notice] = []

    async def main() -> None:
        notifier = Notifier(AlarmSettings(webhook=Webhook("http://127.0.0.1:9/")))
        for notice in (broker, *[NOTICE] * WAITING_MAX, *[broker] * WAITING_MAX, NOTICE):
            notifier.tell(notice)
        waited.extend(notifier._targets[0]._waiting)

    aio.run(main)
    assert waited == [broker] * WAITING_MAX
    dropped = [record.getMessage() for record in caplog.records]
    assert len(dropped) == WAITING_MAX + 2
    assert len([line for line in dropped if "no master" in line]) == 1
