"""Attempts to take from a broker what is others': floods, more connections than allowed, guessed signatures. The broker
is a process tree with several selectors; the addresses are those of this machine's loopback network."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

pytest.importorskip("rocketpy.native.core", exc_type=ImportError)

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.remoting.command import RemotingCommand
from tests.support.accounts import SECRET, signed
from tests.support.broker import RunningBroker, free_ports, running_broker
from tests.support.waiting import metric, wait_until
from tests.support.wire import Wire, offset_request, send_request

A, B, WHITE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
FIRST, SECOND = "first-account", "second-account"
FILE = f"globalWhiteRemoteAddresses: [{WHITE}]\naccounts:\n" + "".join(
    f"- {{accessKey: {one}, secretKey: {SECRET}, topicPerms: [T=PUB|SUB]}}\n" for one in (FIRST, SECOND)
)


@attrs.frozen
class Limited:
    """A broker with limits and two selectors."""

    broker: RunningBroker
    metrics_port: int

    def open(self, host: str) -> Wire:
        return Wire(socket.create_connection(("127.0.0.1", self.broker.port), 60, source_address=(host, 0)))

    def metric(self, name: str) -> float:
        return metric(self.metrics_port, name)


@contextlib.contextmanager
def limited_broker(accounts: Path | None = None, **settings: str) -> Iterator[Limited]:
    metrics_port, _ = free_ports()
    given = {"selectorWorkers": "2", "metricsPort": str(metrics_port)} | settings
    if accounts is not None:
        (accounts / "conf").mkdir()
        (accounts / "conf" / "plain_acl.yml").write_text(FILE)
        given |= {"aclEnable": "true", "rocketmqHome": str(accounts)}
    with running_broker(given) as broker:
        yield Limited(broker, metrics_port)


def serves(wire: Wire) -> bool:
    """Whether the connection is there; it may have been accepted by the kernel alone."""
    try:
        return wire.ask(send_request("T", b"x")).code == ResponseCode.SUCCESS
    except (OSError, EOFError):
        return False


def test_a_flooding_address_waits_in_all_selectors_and_another_notices_nothing() -> None:
    with limited_broker(addressRequestsPerSecond="10") as limited, contextlib.ExitStack() as stack:
        flooding, *others = (stack.enter_context(limited.open(A)) for _ in range(5))
        served = stack.enter_context(limited.open(B))
        assert serves(served)
        flooding.tell(*(send_request("T", b"x") for _ in range(1000)))
        flooding.read()  # what was read with it fills many buckets
        for wire in others:
            wire.tell(send_request("T", b"x"))
        for _ in range(8):
            assert serves(served)
        answers = select.poll()  # any descriptor; `select` takes those below 1024
        for wire in others:
            answers.register(wire.sock, select.POLLIN)
        assert answers.poll(0) == []
        assert limited.metric("rocketpy_remoting_throttled_total") >= len(others)


def test_connections_of_an_address_are_bounded_over_selectors_and_after_the_death_of_one() -> None:
    with limited_broker(addressConnectionsMax="4") as limited, contextlib.ExitStack() as stack:
        opened = [stack.enter_context(limited.open(A)) for _ in range(4)]
        assert all(map(serves, opened))
        assert not serves(stack.enter_context(limited.open(A)))
        assert serves(stack.enter_context(limited.open(B)))
        limited.broker.kill_worker("selector 0")
        wait_until(lambda: sum(map(serves, opened)) == 2, "the connections of the dead selector end")
        opened = [wire for wire in opened if serves(wire)]

        def more() -> bool:
            opened.append(stack.enter_context(limited.open(A)))
            if not serves(opened[-1]):
                opened.pop()
            return len(opened) == 4

        wait_until(more, "as many connections as before")
        assert not serves(stack.enter_context(limited.open(A)))
        assert all(map(serves, opened))


def test_an_address_that_fails_to_authenticate_is_disconnected_and_refused(tmp_path: Path) -> None:
    with limited_broker(tmp_path, failedAuthenticationsMax="20") as limited, contextlib.ExitStack() as stack:
        before, served = stack.enter_context(limited.open(A)), stack.enter_context(limited.open(B))
        assert before.ask(signed(send_request("T", b"x"), FIRST)).code == ResponseCode.SUCCESS
        refused = 0
        for number in range(200):
            code = RequestCode.SEND_MESSAGE_V2 if number % 2 else RequestCode.GET_MAX_OFFSET
            request = send_request("T", b"x") if number % 2 else offset_request(code, "T")
            with contextlib.suppress(OSError, EOFError), limited.open(A) as wire:
                refused += wire.ask(signed(request, FIRST, f"guess-{number}")).code == ResponseCode.SYSTEM_ERROR
        assert refused == 20
        before.tell(signed(send_request("T", b"x"), FIRST))
        assert before.is_closed_by_peer()
        assert served.ask(signed(send_request("T", b"x"), SECOND)).code == ResponseCode.SUCCESS
        assert limited.broker.text().count(f"failed authentications: {A} is blocked") == 1
        assert limited.metric("rocketpy_remoting_address_refused_total") == 180
        assert limited.metric('rocketpy_limits_total{event="address_blocked"}') == 1


@pytest.mark.parametrize("limit", ["accountRequestsPerSecond", "accountBytesPerSecond"])
def test_an_account_at_its_limit_is_refused_everywhere_and_another_is_served(tmp_path: Path, limit: str) -> None:
    allowed = "1" if limit == "accountRequestsPerSecond" else "500"
    with limited_broker(tmp_path, **{limit: allowed}) as limited, contextlib.ExitStack() as stack:
        wires = [stack.enter_context(limited.open(host)) for host in (A, B)]
        codes: set[int] = set()
        for _ in range(100):
            for wire in wires:
                flood = [signed(wire.number(send_request("T", bytes(900))), FIRST) for _ in range(10)]
                answers = wire.answers(wire.tell(*flood)).values()
                codes |= {answer.code for answer in answers}
                texts = {answer.remark for answer in answers if answer.code == ResponseCode.SYSTEM_BUSY}
            if len(codes) > 1:
                break
        assert codes == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY}
        assert all(limit in (text or "") for text in texts)
        queries = [wires[0].number(offset_request(RequestCode.GET_MAX_OFFSET, "T")) for _ in range(40)]
        slow = wires[0].answers(wires[0].tell(*(signed(query, FIRST) for query in queries))).values()
        assert any(answer.code == ResponseCode.SYSTEM_BUSY and limit in (answer.remark or "") for answer in slow)
        assert wires[1].ask(signed(send_request("T", b"x"), SECOND)).code == ResponseCode.SUCCESS
        assert limited.metric('rocketpy_limits_total{event="account_busy"}') > 1


def test_what_is_signed_at_a_white_address_counts_on_both_paths(tmp_path: Path) -> None:
    """Fault: Python charged no request from a white address to its account, the fast path each."""
    with limited_broker(tmp_path, accountRequestsPerSecond="1") as limited, limited.open(WHITE) as wire:
        assert serves(wire), "without a signature"

        def codes(make: Callable[[], RemotingCommand], account: str | None) -> set[int]:
            requests = [wire.number(make()) for _ in range(60)]
            told = requests if account is None else [signed(request, account) for request in requests]
            return {answer.code for answer in wire.answers(wire.tell(*told)).values()}

        for make in (lambda: send_request("T", b"x"), lambda: offset_request(RequestCode.GET_MAX_OFFSET, "T")):
            assert codes(make, None) == {ResponseCode.SUCCESS}
            assert ResponseCode.SYSTEM_BUSY in codes(make, FIRST)
