"""The client for etcd against answers of every kind, without a network."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from typing import Any

import attrs
import httpcore
import pytest
import trio
import trio.testing

from rocketpy.failover.etcd import gateway
from rocketpy.failover.etcd.gateway import Access, EtcdError, EtcdStatus, EtcdUnavailable, Gateway
from rocketpy.failover.etcd.group_keys import EtcdReplaced, GroupKeys
from rocketpy.failover.rules.records import GroupState, MasterRecord
from rocketpy.failover.rules.requests import Kind, Outcome, Transaction


@attrs.frozen
class Asked:
    """A request, as a member of etcd gets it."""

    host: str
    path: str
    headers: Mapping[str, str]
    content: bytes


def given(answer: object, status: int = 200) -> httpcore.Response:
    """An answer: bytes, or what JSON is made of."""
    return httpcore.Response(status, content=answer if isinstance(answer, bytes) else json.dumps(answer).encode())


Answering = Callable[[Asked], Awaitable[httpcore.Response]]
ADDRESSES = ("http://one:1", "http://two:2", "http://three:3")


class Members(httpcore.AsyncConnectionPool):
    """Members of etcd that answer like this."""

    def __init__(self, answering: Answering) -> None:
        super().__init__()
        self._answering = answering

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        assert isinstance(request.stream, AsyncIterable)
        content = b"".join([part async for part in request.stream])
        headers = {name.decode().lower(): value.decode() for name, value in request.headers}
        return await self._answering(Asked(request.url.host.decode(), request.url.target.decode(), headers, content))


def run(answering: Answering, work: Callable[[Gateway], Awaitable[Any]], **access: Any) -> Any:
    """What `work` returns, with members that answer like this; time passes as fast as nothing happens."""

    async def main() -> Any:
        reach = Access(addresses=ADDRESSES, **access)
        async with Gateway(reach, Members(answering)) as made:
            return await work(made)

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


def answers(content: object, status: int = 200) -> Answering:
    async def answer(_request: Asked) -> httpcore.Response:
        return given(content, status)

    return answer


HEADER = {"cluster_id": "14841639068965178418", "revision": "7"}
ELECTION = Transaction(
    number=1,
    kind=Kind.ELECT,
    state_revision=7,
    state=GroupState(epoch=2, master="b", in_sync={"b": "i"}),
    master=MasterRecord(member="b", epoch=2, lease=9),
    master_absent=True,
)


async def decide(made: Gateway) -> Outcome:
    return (await GroupKeys(made, "c", "b").decide(ELECTION))[0]


def test_numbers_are_texts_and_what_is_0_is_left_out() -> None:
    assert run(answers({"ID": "7587862094990551817", "TTL": "6"}), lambda made: made.grant(6)) == (
        7587862094990551817,
        6,
    )
    assert run(answers({"result": {"ID": "5", "TTL": "6"}}), lambda made: made.keep_alive(5)) == 6
    assert run(answers({"result": {"ID": "5"}}), lambda made: made.keep_alive(5)) == 0


@pytest.mark.parametrize("answer", [{}, {"ID": "5"}, {"TTL": "6"}, {"ID": "-1", "TTL": "6"}])
def test_what_is_no_grant_is_not_taken_for_one(answer: dict[str, str]) -> None:
    """Fault: An empty answer of etcd was taken for lease 0, or for the end of a lease."""
    with pytest.raises(EtcdUnavailable, match="no grant of a lease"):
        run(answers(answer), lambda made: made.grant(6))


@pytest.mark.parametrize("answer", [{}, {"result": {}}, {"result": {"ID": "4", "TTL": "6"}}])
def test_what_is_no_renewal_does_not_say_that_the_lease_has_ended(answer: dict[str, object]) -> None:
    with pytest.raises(EtcdUnavailable, match="no renewal of lease 5"):
        run(answers(answer), lambda made: made.keep_alive(5))


def test_revoking_a_lease_that_is_gone_is_no_error() -> None:
    refusal = answers({"error": "etcdserver: requested lease not found", "code": 5}, 404)
    assert run(refusal, lambda made: made.revoke(5)) is None
    with pytest.raises(EtcdError, match="permission denied"):
        run(answers({"error": "etcdserver: permission denied", "code": 7}, 403), lambda made: made.revoke(5))


def test_the_first_answer_counts_and_the_others_are_not_waited_for() -> None:
    async def answer(request: Asked) -> httpcore.Response:
        if request.host == "one":
            raise httpcore.ConnectError("refused")
        await trio.sleep(0.2 if request.host == "two" else 0.6)
        return given({"ID": "1" if request.host == "two" else "2", "TTL": "6"})

    async def work(made: Gateway) -> tuple[int, float]:
        begun = trio.current_time()
        lease, _ = await made.grant(6)
        return lease, trio.current_time() - begun

    lease, took_s = run(answer, work)
    assert lease == 1 and took_s < 0.3


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"error": {}, "code": "x"}'])
def test_an_answer_that_is_none_is_no_answer(content: bytes) -> None:
    with pytest.raises((EtcdUnavailable, ValueError)) as found:
        run(answers(content, 502), lambda made: made.read(b"/k/"))
    assert isinstance(found.value, EtcdUnavailable)


def test_an_endless_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ANSWER_MAX", 1000)

    async def endless() -> Any:
        while True:
            await trio.sleep(0.001)
            yield b"x" * 100

    async def answer(_request: Asked) -> httpcore.Response:
        return httpcore.Response(200, content=endless())

    with pytest.raises(EtcdUnavailable, match="more than 1000 bytes"):
        run(answer, lambda made: made.read(b"/k/"))


def test_members_that_hang_cost_the_timeout() -> None:
    async def answer(_request: Asked) -> httpcore.Response:
        await trio.sleep_forever()
        raise AssertionError

    async def work(made: Gateway) -> float:
        begun = trio.current_time()
        with pytest.raises(EtcdUnavailable):
            await made.read(b"/k/")
        return trio.current_time() - begun

    assert run(answer, work, timeout_s=1.5) == pytest.approx(1.5 + gateway.HEDGE_S, abs=0.01)


def test_a_transaction_is_asked_again_only_if_it_was_not_sent() -> None:
    asked: list[str] = []

    async def answer(request: Asked) -> httpcore.Response:
        asked.append(request.host)
        if request.host == "one":
            raise httpcore.ConnectError("refused")
        raise httpcore.ReadError("reset by peer")

    async def twice(made: Gateway) -> list[Outcome]:
        return [await decide(made), await decide(made)]

    assert run(answer, twice) == [Outcome.UNKNOWN, Outcome.UNKNOWN]
    assert asked == ["one", "two", "three"]  # the second transaction begins with another member


def test_a_transaction_that_nobody_took_is_refused() -> None:
    async def answer(_request: Asked) -> httpcore.Response:
        raise httpcore.ConnectError("refused")

    assert run(answer, decide) is Outcome.REFUSED


@pytest.mark.parametrize(
    ("status", "code", "text", "outcome"),
    [
        (404, 5, "etcdserver: requested lease not found", Outcome.REFUSED),
        (403, 7, "etcdserver: permission denied", Outcome.REFUSED),
        (503, 14, "etcdserver: no leader", Outcome.UNKNOWN),
        (503, 14, "etcdserver: request timed out", Outcome.UNKNOWN),
        (500, 2, "unknown", Outcome.UNKNOWN),
        (504, 4, "context deadline exceeded", Outcome.UNKNOWN),
    ],
)
def test_only_certain_errors_are_refusals(status: int, code: int, text: str, outcome: Outcome) -> None:
    assert run(answers({"error": text, "code": code}, status), decide) is outcome


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"header": HEADER, "succeeded": True},
        {"header": HEADER, "succeeded": True, "responses": []},
        {"header": HEADER, "succeeded": True, "responses": [{"response_range": {"kvs": [{"key": "!"}]}}]},
        {"header": {}, "succeeded": True, "responses": [{"response_range": {}}]},
    ],
)
def test_half_an_answer_to_a_transaction_is_none(answer: dict[str, Any]) -> None:
    assert run(answers(answer), decide) is Outcome.UNKNOWN


@pytest.mark.parametrize(
    ("status", "code", "text"),
    [
        (401, 16, "etcdserver: invalid auth token"),
        (400, 3, "etcdserver: revision of auth store is old"),  # a JWT, and somebody has changed a user or a role
        (400, 3, "etcdserver: user name is empty"),
    ],
)
def test_a_token_is_renewed_when_etcd_does_not_take_it_any_more(status: int, code: int, text: str) -> None:
    """Fault: With JWTs in etcd, a change of any user or role shut brokers out until a restart."""
    seen: list[tuple[str, str | None]] = []

    async def answer(request: Asked) -> httpcore.Response:
        seen.append((request.path, request.headers.get("authorization")))
        if request.path == "/v3/auth/authenticate":
            assert json.loads(request.content) == {"name": "u", "password": "p"}
            return given({"token": f"t{len(seen)}"})
        if request.headers.get("authorization") == "t1":
            return given({"error": text, "code": code}, status)
        return given({"header": HEADER, "succeeded": False, "responses": [{"response_range": {}}]})

    assert run(answer, decide, user="u", password="p") is Outcome.REFUSED
    path = "/v3/kv/txn"
    login = ("/v3/auth/authenticate", None)
    assert seen == [login, (path, "t1"), login, (path, "t3")]


def test_a_request_has_the_headers_that_http_wants() -> None:
    async def answer(request: Asked) -> httpcore.Response:
        assert request.headers["host"] in {address.partition("://")[2] for address in ADDRESSES}
        assert request.headers["content-length"] == str(len(request.content))
        return given({"ID": "1", "TTL": "6"})

    assert run(answer, lambda made: made.grant(6)) == (1, 6)


def test_a_request_that_is_cancelled_leaves_nothing_open() -> None:
    """Warnings are errors: a generator that is left open is one."""

    async def answer(_request: Asked) -> httpcore.Response:
        await trio.sleep_forever()
        raise AssertionError

    async def work(made: Gateway) -> None:
        with trio.move_on_after(0.1):
            await made.read(b"/k/")
        gc.collect()

    run(answer, work)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Access(addresses=ADDRESSES, user="u", password="secret"))


def test_another_cluster_is_noticed() -> None:
    clusters = iter(["5", "5", "6"])

    async def answer(request: Asked) -> httpcore.Response:
        if request.host != "one":
            await trio.sleep_forever()
        return given({"header": {"cluster_id": next(clusters), "revision": "4"}})

    async def work(made: Gateway) -> None:
        keys = GroupKeys(made, "c", "b")
        assert (await keys.read()).revision == (await keys.read()).revision == 4
        with pytest.raises(EtcdReplaced, match="6 answers, before it was 5"):
            await keys.read()

    run(answer, work)


def test_names_cannot_leave_their_place() -> None:
    async def work(made: Gateway) -> list[bytes]:
        return [GroupKeys(made, *names).prefix for names in [("a/b", "c"), ("a", "b/c"), ("../x", "ü")]]

    prefixes = run(answers({}), work)
    assert prefixes == [b"/rocketpy/a%2Fb/c/", b"/rocketpy/a/b%2Fc/", b"/rocketpy/..%2Fx/%C3%BC/"]


def test_the_status_of_etcd_names_its_alarms() -> None:
    """As 3.4.23 answers, with an alarm and without."""
    full = {"header": {"revision": "39"}, "dbSize": "200704", "errors": ["memberID:331 alarm:NOSPACE "]}
    answers = [given(full), given({"header": {"revision": "40"}, "dbSize": "20480"}), given({"errors": "?"})]

    async def answering(asked: Asked) -> httpcore.Response:
        assert asked.path == "/v3/maintenance/status"
        return answers.pop(0)

    async def work(gateway: Gateway) -> list[EtcdStatus]:
        return [await gateway.status() for _ in range(3)]

    found = run(answering, work)
    assert found == [
        EtcdStatus(revision=39, db_bytes=200_704, alarms="NOSPACE"),
        EtcdStatus(revision=40, db_bytes=20_480),
        EtcdStatus(),
    ]


def test_history_that_is_removed_already_is_no_fault() -> None:
    compacted = {"error": "etcdserver: mvcc: required revision has been compacted", "code": 11}
    answers = [({}, 200), *[(compacted, 400)] * 3, *[({"error": "etcdserver: no leader", "code": 14}, 503)] * 3]

    async def answering(asked: Asked) -> httpcore.Response:
        assert asked.path == "/v3/kv/compaction" and json.loads(asked.content) == {"revision": "20"}
        return given(*answers.pop(0))

    async def work(gateway: Gateway) -> None:
        await gateway.compact(20)
        await gateway.compact(20)
        with pytest.raises(EtcdUnavailable, match="no leader"):
            await gateway.compact(20)

    run(answering, work)
