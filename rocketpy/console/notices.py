"""Notices: each goes to the webhook and by mail, in a thread, within a time, three times at most.

One task and one bounded queue for each target: a target that does not answer delays no other, and no page. When its
queue is full the oldest notice of a group is dropped, or the oldest one if all are of brokers. The log tells it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import smtplib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import attrs

from rocketpy import aio
from rocketpy.errors import RocketError
from rocketpy.faults import describe, printable

from .alarm_file import AlarmSettings, Mail, Webhook
from .alarms import Notice, as_json
from .conditions import OF_GROUPS

logger = logging.getLogger(__name__)

WAITING_MAX = 200
PAUSES_S = (2.0, 10.0)  # before the second and the third try
CUT_AGAIN_S = 0.5
REPLIES_MAX = 1 << 20  # bytes, of all replies of a mail server
STEPS_TIMEOUT = 2  # all steps of a delivery together may take this many times the timeout of one


class NoticeFailed(RocketError):
    """A target did not take a notice."""


class Notifier:
    """Hands notices to the targets of the file of alarms."""

    def __init__(self, settings: AlarmSettings) -> None:
        self._targets: list[_Target] = []
        if (webhook := settings.webhook) is not None:
            self._targets.append(_Target("webhook", lambda notice: post(webhook, notice)))
        if (mail := settings.mail) is not None:
            self._targets.append(_Target("mail", lambda notice: send_mail(mail, notice)))

    def tell(self, notice: Notice) -> None:
        for target in self._targets:
            target.put(notice)

    async def run(self) -> None:
        """Deliver notices until cancelled. A thread that is in the middle of a notice is waited for."""
        async with aio.open_nursery() as nursery:
            for target in self._targets:
                nursery.start_soon(target.run)
            await aio.sleep_forever()


class _Target:
    """A webhook or mail server, and the notices that wait for it."""

    def __init__(self, name: str, send: Callable[[Notice], None]) -> None:
        self._name = name
        self._send = send
        self._waiting: deque[Notice] = deque()
        self._arrived = aio.Event()

    def put(self, notice: Notice) -> None:
        self._waiting.append(notice)
        if len(self._waiting) > WAITING_MAX:
            places = (place for place, one in enumerate(self._waiting) if one.condition.kind in OF_GROUPS)
            place = next(places, 0)
            dropped = self._waiting[place]
            del self._waiting[place]
            logger.error("dropped a notice for the %s, %d wait: %s", self._name, WAITING_MAX, _line(dropped))
        self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived = aio.Event()
            while self._waiting:
                await self._deliver(self._waiting.popleft())

    async def _deliver(self, notice: Notice) -> None:
        for pause_s in (*PAUSES_S, None):
            try:
                await aio.in_thread(self._send, notice)
                logger.info("told the %s: %s", self._name, _line(notice))
                return
            except NoticeFailed as error:
                reason = str(error)
            except Exception as fault:  # of a library: it ends neither the other target nor the pages
                reason = describe(fault)
            if pause_s is not None:
                await aio.sleep(pause_s)
        logger.error("the %s did not take a notice: %s; the notice was: %s", self._name, reason, _line(notice))


def _line(notice: Notice) -> str:
    return printable(f"{notice.change.value}: {notice.condition.text}")


@contextlib.contextmanager
def cut_off(seconds: float, connection: Callable[[], socket.socket | None]) -> Iterator[None]:
    """Shut a socket down after a time: a server that sends a byte now and then would never run into a time-out.

    Args:
        connection: returns the socket; None: it is not connected yet, and is asked for again.
    Raises:
        TimeoutError: it was shut down, although what was read up to there looked like an answer.
    """
    is_cut, is_over = threading.Event(), threading.Event()

    def cut() -> None:
        wait_s = seconds
        while not is_over.wait(wait_s):
            is_cut.set()
            wait_s = CUT_AGAIN_S  # while no address of the host is connected
            with contextlib.suppress(OSError):
                if (found := connection()) is not None:
                    found.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=cut, daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
    if is_cut.is_set():
        raise TimeoutError(f"no answer within {seconds:g} s")


def post(webhook: Webhook, notice: Notice) -> None:
    """POST a notice as JSON.

    Raises:
        NoticeFailed: also for a redirect, which could lead into the network of the console.
    """
    parts = urlsplit(webhook.url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=webhook.timeout_s)
    headers = {"Content-Type": "application/json", "User-Agent": "rocketpy-console", "Connection": "close"}
    if webhook.authorization is not None:
        headers["Authorization"] = webhook.authorization
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with cut_off(webhook.timeout_s * STEPS_TIMEOUT, lambda: connection.sock):
            connection.request("POST", target, json.dumps(as_json(notice)), headers)
            status = connection.getresponse().status
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoticeFailed(f"{parts.hostname}: {printable(str(error) or type(error).__name__)}") from error
    finally:
        connection.close()
    if 300 <= status < 400:
        raise NoticeFailed(f"{parts.hostname}: status {status}, a redirect; write the address that it leads to")
    if status >= 300:
        raise NoticeFailed(f"{parts.hostname}: status {status}")


def mail_of(mail: Mail, notice: Notice) -> EmailMessage:
    """Make the mail. Names come from the cluster: what is not printable is escaped."""
    condition = notice.condition
    message = EmailMessage()
    message["Subject"] = printable(f"[rocketpy] {notice.change.value}: {condition.text}")
    message["From"], message["To"] = mail.sender, ", ".join(mail.to)
    message["Date"], message["Message-ID"] = formatdate(notice.now_ms / 1000), make_msgid(domain="rocketpy-console")
    lines = [
        printable(condition.text),
        "",
        f"State: {notice.change.value}",
        f"Value: {condition.value:g}",
        f"Limit: {condition.limit:g}",
        f"Raised: {formatdate(notice.raised_ms / 1000)}",
    ]
    message.set_content("\n".join([*lines, *([f"Link: {notice.link}"] if notice.link else [])]) + "\n")
    return message


@attrs.define(eq=False)
class _Replies:
    """Replies of a mail server, of bounded size: smtplib keeps all lines of a reply until it ends."""

    file: BinaryIO
    size: int = attrs.field(init=False, default=0)

    def readline(self, size: int) -> bytes:
        line = self.file.readline(size)
        self.size += len(line)
        if self.size > REPLIES_MAX:
            raise OSError(f"replies of more than {REPLIES_MAX} bytes")
        return line

    def close(self) -> None:
        self.file.close()


def _connected(mail: Mail, context: ssl.SSLContext, opening: Callable[[smtplib.SMTP], None]) -> smtplib.SMTP:
    """Connect and read the greeting. `opening` gets the object first, so that its socket can be shut down meanwhile."""

    class Plain(smtplib.SMTP):
        """Tells that it begins to connect, which smtplib does in the constructor, and bounds replies."""

        def connect(self, *where: Any, **more: Any) -> tuple[int, bytes]:
            opening(self)
            return super().connect(*where, **more)

        def getreply(self) -> tuple[int, bytes]:
            if self.file is None and self.sock is not None:
                self.file = _Replies(self.sock.makefile("rb"))
            return super().getreply()

    class Tls(Plain, smtplib.SMTP_SSL):
        """Plain, by TLS."""

    if mail.security == "tls":
        return Tls(mail.host, mail.port, timeout=mail.timeout_s, context=context)
    return Plain(mail.host, mail.port, timeout=mail.timeout_s)


def send_mail(mail: Mail, notice: Notice) -> None:
    """Send a notice by SMTP. A fault after the server has taken the mail is none: it would be sent again.

    Raises:
        NoticeFailed: the server did not take it.
    """
    opened: list[smtplib.SMTP] = []
    is_taken = False
    try:
        context = ssl.create_default_context()
        with cut_off(mail.timeout_s * STEPS_TIMEOUT, lambda: opened[0].sock if opened else None):
            smtp = _connected(mail, context, opened.append)
            if mail.security == "starttls":
                smtp.starttls(context=context)
            if mail.user is not None:
                smtp.login(mail.user, mail.password or "")
            smtp.send_message(mail_of(mail, notice))
            is_taken = True
            smtp.quit()
    except (OSError, smtplib.SMTPException, ValueError) as error:
        if is_taken:
            return
        raise NoticeFailed(f"{mail.host}: {printable(str(error) or type(error).__name__)}") from error
    finally:
        for smtp in opened:
            smtp.close()
