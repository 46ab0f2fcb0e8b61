"""The HTTP endpoint that Prometheus scrapes: a thread that takes connections, with TLS if it is told to. Its answers to
other requests than the usual scrape are those of prometheus_client (families.py).

Bounds: SCRAPES_MAX connections at once, and SCRAPES_OF_HOST_MAX of one address (IPv6: one /64), each in a thread;
further ones are closed. Of each connection the silence, the wait for its turn, and the time from its begin to its end.
Usual scrapes share an answer; all others take turns, because each takes a snapshot.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import select
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import attrs

from rocketpy.faults import describe
from rocketpy.logs import LogLimit, and_more
from rocketpy.networks import network_of

from .address import listen, port_of
from .collector import RowCollector
from .exposition import Form, usual_form
from .scrape import BadRequest, Request, ScrapeFailed, encoded, read_request

if TYPE_CHECKING:
    import ssl

    Contexts = Callable[[], ssl.SSLContext]

logger = logging.getLogger(__name__)

SILENCE_MAX_S = 10.0  # of a client: in its handshake, its request, and in reading the answer
SCRAPE_MAX_S = 30.0  # of a client that is not silent: from its connection to the end of its answer
SCRAPES_MAX = 16
SCRAPES_OF_HOST_MAX = 8  # one address, or /64 of IPv6, leaves room for others
LOOK_S = 0.5  # between two looks at connections that take too long, and for a free descriptor
SHARED_S = 1.0  # scrapes that come within it get one answer: its snapshot takes time of the loop that serves
TURN_MAX_S = 20.0  # for which a scrape waits for others
PLAIN = "text/plain; charset=utf-8"
GZIP_LEVEL = 1  # of 2.5 MB: 10 ms of the processor instead of 60, and a tenth more bytes
GZIP_WINDOW = 31  # 2 to the power of 15 bytes, with a header of gzip


@attrs.define(eq=False)
class _Scrape:
    """A connection to the endpoint, by a duplicate of its descriptor: TLS takes the first one over."""

    connection: socket.socket
    host: str
    due_s: float
    """When it is cut; inf: that is done."""


class _Server:
    """A thread per scrape; the process does not wait for them when it ends."""

    def __init__(
        self,
        listener: socket.socket,
        answer: Callable[[Request], bytes],
        contexts: Contexts | None,
        silence_max_s: float,
        scrape_max_s: float,
    ) -> None:
        listener.setblocking(False)  # a connection that waited may be gone
        self._listener, self._answer = listener, answer
        self._contexts, self._silence_max_s, self._scrape_max_s = contexts, silence_max_s, scrape_max_s
        self._limit, self._lock = LogLimit(), threading.Lock()
        self._scrapes: dict[socket.socket, _Scrape] = {}  # by the connection; guarded by `_lock`
        self._closing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def serve_until_closed(self) -> None:
        """Take connections until `close`; the body of the server's thread, which rests while there are none."""
        poller = select.poll()
        poller.register(self._listener, select.POLLIN)
        poller.register(self._closing, select.POLLIN)
        while True:
            ready = {fd for fd, _ in poller.poll(LOOK_S * 1000 if self._scrapes else None)}
            if self._closing in ready:
                return
            if ready:
                self._accept()
            self.cut_late()

    def close(self, thread: threading.Thread) -> None:
        """End `serve_until_closed` in its thread, and close the listener."""
        os.eventfd_write(self._closing, 1)
        thread.join()
        os.close(self._closing)
        self._listener.close()

    def _accept(self) -> None:
        """Begin a thread for a connection, or close it; in the thread of the server."""
        try:
            connection, address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptor is free: the connection waits
            time.sleep(LOOK_S)
            return
        host = address[0]
        with self._lock:
            networks = [network_of(scrape.host) for scrape in self._scrapes.values()]
        open_count, of_host = len(networks), networks.count(network_of(host))
        if open_count >= SCRAPES_MAX or of_host >= SCRAPES_OF_HOST_MAX:
            connection.close()
            text = "closed a scrape of %s: %d others, %d of it, have not ended%s"
            self._tell("closed", text, host, open_count, of_host)
            return
        try:
            scrape = _Scrape(connection.dup(), host, time.monotonic() + self._scrape_max_s)
            with self._lock:
                self._scrapes[connection] = scrape
            threading.Thread(target=self._serve_scrape, args=(connection, host), daemon=True).start()
        except (OSError, RuntimeError) as exc:  # no descriptor or no thread is free
            self._end(connection)
            connection.close()
            self._tell("failed", "a scrape of %s failed: %s%s", host, exc)

    def _serve_scrape(self, connection: socket.socket, host: str) -> None:
        """Serve a connection; the body of its thread."""
        connection.settimeout(self._silence_max_s)
        try:
            if self._contexts is not None:
                connection_or_tls: socket.socket = self._contexts().wrap_socket(connection, server_side=True)
            else:
                connection_or_tls = connection
            with connection_or_tls as stream:
                self._serve(stream, host)
        except OSError as exc:  # ssl.SSLError is one
            self._tell("failed", "a scrape of %s failed: %s%s", host, _reason(exc))
        finally:
            self._end(connection)
            connection.close()

    def _serve(self, stream: socket.socket, host: str) -> None:
        """Read a request and answer it. Raises: OSError, of the connection."""
        try:
            request = read_request(stream)
        except BadRequest:
            return stream.sendall(encoded("400 Bad Request"))
        except TimeoutError:
            return
        if request is None:
            return
        try:
            answer = self._answer(request)
        except ScrapeFailed as failed:
            self._tell("unmade", "a scrape of %s failed: %s%s", host, failed)
            answer = encoded("503 Service Unavailable", [("Content-Type", PLAIN)], f"{failed}\n".encode())
        except Exception as fault:  # the next scrape is to be answered all the same
            self._tell("fault", "a scrape of %s failed: %s%s", host, describe(fault))
            answer = encoded("500 Internal Server Error")
        stream.sendall(answer)

    def cut_late(self) -> None:
        """Cut the connections that have taken too long; in the thread of the server."""
        now_s = time.monotonic()
        with self._lock:
            late = [scrape for scrape in self._scrapes.values() if scrape.due_s <= now_s]
            for scrape in late:
                scrape.due_s = math.inf
                with contextlib.suppress(OSError):
                    scrape.connection.shutdown(socket.SHUT_RDWR)  # its thread reads an end, and cannot write
        for scrape in late:
            self._tell("late", "closed a scrape of %s: it took more than %g s%s", scrape.host, self._scrape_max_s)

    def _end(self, connection: socket.socket) -> None:
        with self._lock:  # `cut_late` uses the descriptor in it
            scrape = self._scrapes.pop(connection, None)
            if scrape is not None:
                scrape.connection.close()

    def _tell(self, kind: str, text: str, *values: object) -> None:
        if told := self._limit.take(kind):
            logger.warning(text, *values, and_more(told))


class _Turns:
    """Lets threads in one at a time, in the order in which they come: one client that asks again and again delays
    others by one answer of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[threading.Event] = deque()  # the first one is in

    @contextlib.contextmanager
    def take(self) -> Iterator[None]:
        """Wait for a turn. Raises: ScrapeFailed: it has not come in TURN_MAX_S."""
        mine = threading.Event()
        with self._lock:
            self._waiting.append(mine)
            self._waiting[0].set()
        try:
            if not mine.wait(TURN_MAX_S):
                raise ScrapeFailed(f"other scrapes have taken more than {TURN_MAX_S:g} s")
            yield
        finally:
            with self._lock:
                self._waiting.remove(mine)
                if self._waiting:
                    self._waiting[0].set()


class _Answers:
    """Makes the answers, one after the other, because each takes a snapshot; for several threads. Usual scrapes share
    an answer."""

    def __init__(
        self,
        collector: RowCollector[Any],
        queues: Callable[[list[str]], RowCollector[Any]] | None,
    ) -> None:
        self._collector, self._queues = collector, queues
        self._turns = _Turns()
        self._shared: dict[tuple[str, bool], tuple[float, bytes]] = {}  # by type and gzip: when it was begun, and all

    def answer(self, request: Request) -> bytes:
        """Return the answer to a request. A scrape that names topics shows their queues and nothing else, so that
        Prometheus may scrape both.

        Raises: ScrapeFailed.
        """
        query = parse_qs(request.query)
        topics = query.get("queues") if self._queues else None
        collector = self._queues(topics) if self._queues and topics else self._collector
        form = usual_form(request.headers.get("accept", ""))
        is_scrape = request.method == "GET" and request.path != "/favicon.ico"
        if not is_scrape or form is None or "name[]" in query:
            from . import families

            work = partial(families.answer, collector, request.environ())
            with self._turns.take():
                return collector.make(work) if is_scrape else work()
        packed = _takes_gzip(request.headers.get("accept-encoding", ""))
        work = partial(_text, collector, form, is_packed=packed)
        if collector is self._collector:
            return self._share((form.content_type, packed), work)
        with self._turns.take():
            return collector.make(work)

    def _share(self, kind: tuple[str, bool], work: Callable[[], bytes]) -> bytes:
        """Return an answer that was begun SHARED_S before this call at most."""
        came_s = time.monotonic()
        with self._turns.take():
            begun_s, answer = self._shared.get(kind, (-math.inf, b""))
            if came_s - begun_s >= SHARED_S:
                begun_s = time.monotonic()
                answer = self._collector.make(work)
                young = {kind: kept for kind, kept in self._shared.items() if begun_s - kept[0] < SHARED_S}
                self._shared = young | {kind: (begun_s, answer)}
            return answer


def _text(collector: RowCollector[Any], form: Form, *, is_packed: bool) -> bytes:
    """Return the answer to a usual scrape."""
    text = collector.text(is_openmetrics=form.is_openmetrics)
    headers = [("Content-Type", form.content_type)]
    if is_packed:
        text = zlib.compress(text, GZIP_LEVEL, GZIP_WINDOW)
        headers.append(("Content-Encoding", "gzip"))
    return encoded("200 OK", headers, text)


class Endpoint:
    """A running endpoint on a listening socket, which it takes over; `close` it, or use it as a context manager.

    Starts a thread: not for a process that will fork.
    """

    def __init__(
        self,
        listener: socket.socket,
        collector: RowCollector[Any],
        contexts: Contexts | None = None,
        silence_max_s: float = SILENCE_MAX_S,
        scrape_max_s: float = SCRAPE_MAX_S,
        queues: Callable[[list[str]], RowCollector[Any]] | None = None,
    ) -> None:
        """Serve `collector`.

        Args:
            contexts: asked for the TLS of each scrape; None: they are plain.
            queues: returns the collector of a scrape that names topics, `/metrics?queues=TOPIC&queues=TOPIC`.
        """
        self.port = port_of(listener)
        answer = _Answers(collector, queues).answer
        self._server = _Server(listener, answer, contexts, silence_max_s, scrape_max_s)
        self._thread = threading.Thread(target=self._server.serve_until_closed, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; returns when the thread is gone."""
        self._server.close(self._thread)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _takes_gzip(accept_encoding: str) -> bool:
    return any(one.partition(";")[0].strip().lower() == "gzip" for one in accept_encoding.split(","))


def _reason(error: OSError) -> str:
    reason = str(getattr(error, "reason", None) or error.strerror or error)
    if reason == "HTTP_REQUEST":
        return "it speaks no TLS (metricsUseTLS=true): give its job `scheme: https`"
    return reason


def serve(host: str, port: int, collector: RowCollector[Any], contexts: Contexts | None = None) -> Endpoint:
    """Serve `collector` on host and port. Whether to serve at all (`metricsPort = 0`) is the caller's to decide.

    Raises:
        ConfigError: the address cannot be listened on, in one line that says why and what to change.
    """
    return Endpoint(listen(host, port), collector, contexts)
