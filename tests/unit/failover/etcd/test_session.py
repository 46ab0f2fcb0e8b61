"""Log-ins in simulated time: few of them, whatever many requests want at once."""

from __future__ import annotations

import httpcore
import pytest
import trio

from rocketpy.failover.etcd.gateway import BACK_OFF_MAX_S, LOG_IN_TIMEOUT_S, EtcdError, EtcdUnavailable, Gateway
from tests.unit.failover.etcd.test_gateway import Asked, given, run

BCRYPT_S = 2.0  # of a busy etcd
LOG_IN = "/v3/auth/authenticate"


class Etcd:
    """Takes its time for a log-in, and refuses all but the newest token."""

    def __init__(self) -> None:
        self.log_ins = 0
        self.paths: list[str] = []
        self.refuses: tuple[object, int] | None = None

    async def __call__(self, asked: Asked) -> httpcore.Response:
        self.paths.append(asked.path)
        if asked.path == LOG_IN:
            self.log_ins += 1
            token = f"t{self.log_ins}"
            if self.refuses is not None:
                return given(*self.refuses)
            await trio.sleep(BCRYPT_S)
            return given({"token": token})
        if asked.path.startswith("/v3/lease/"):
            return given({"ID": "1", "TTL": "6"})
        if asked.headers.get("authorization") != f"t{self.log_ins}":
            return given({"error": "etcdserver: invalid auth token", "code": 16}, 401)
        return given({"kvs": []})


async def many(gateway: Gateway) -> None:
    """Twenty requests at once, each of which goes to all members after a moment."""
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(gateway.read, b"/k")


def test_requests_share_one_log_in_and_its_token() -> None:
    """Fault: With accounts in etcd, each request logged in anew, and a group of three did not form under load."""
    etcd = Etcd()

    async def work(gateway: Gateway) -> None:
        await many(gateway)
        assert etcd.log_ins == 1
        await many(gateway)
        assert etcd.log_ins == 1, "the token is kept"
        etcd.log_ins = 7  # etcd was restarted, and knows no token any more
        await many(gateway)
        assert etcd.log_ins == 8

    run(etcd, work, user="u", password="p")


def test_a_lease_does_not_wait_for_a_log_in() -> None:
    etcd = Etcd()

    async def work(gateway: Gateway) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(many, gateway)
            await trio.sleep(0.01)
            begun_s = trio.current_time()
            assert await gateway.grant(6) == (1, 6)
            assert trio.current_time() - begun_s < 0.5

    run(etcd, work, user="u", password="p")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (({"error": "etcdserver: authentication failed, invalid user ID or password", "code": 3}, 400), EtcdError),
        (({"error": "etcdserver: no leader", "code": 14}, 503), EtcdUnavailable),
    ],
)
def test_after_a_log_in_that_failed_the_next_one_waits(answer: tuple[object, int], error: type[Exception]) -> None:
    etcd = Etcd()
    etcd.refuses = answer

    async def work(gateway: Gateway) -> None:
        deadline_s = trio.current_time() + 60
        while trio.current_time() < deadline_s:
            with pytest.raises(error):
                await gateway.read(b"/k")
            await trio.sleep(0.2)
        assert 60 / BACK_OFF_MAX_S <= etcd.log_ins < 20
        etcd.refuses = None
        await trio.sleep(BACK_OFF_MAX_S)
        await gateway.read(b"/k")

    run(etcd, work, user="u", password="p")
    assert LOG_IN_TIMEOUT_S > BCRYPT_S


def test_a_log_in_passes_over_members_that_take_no_connection() -> None:
    """Fault: With accounts in etcd, mqadmin could not elect a master while the first of haEtcdAddresses was lost."""
    etcd, asked = Etcd(), list[str]()

    async def answer(request: Asked) -> httpcore.Response:
        asked.append(request.host)
        if request.host != "three":
            raise httpcore.ConnectError("refused")
        return await etcd(request)

    run(answer, lambda gateway: gateway.read(b"/k"), user="u", password="p")
    assert asked[:3] == ["one", "two", "three"] and etcd.log_ins == 1


def test_a_log_in_goes_to_the_member_that_has_refused_the_token() -> None:
    """Tokens end at each member by itself, and the preferred member may be frozen when another one refuses.
    Fault: A frozen member of etcd held all requests of a coordinator for up to 6 s."""

    class Frozen(Etcd):
        is_frozen = False

        async def __call__(self, asked: Asked) -> httpcore.Response:
            if self.is_frozen and asked.host == "one":
                await trio.sleep_forever()
            return await super().__call__(asked)

    etcd = Frozen()

    async def work(gateway: Gateway) -> None:
        await gateway.read(b"/k")
        etcd.is_frozen, etcd.log_ins = True, 7  # no member knows the token any more
        gateway._preferred = 0
        began_s = trio.current_time()
        await gateway.read(b"/k")
        assert trio.current_time() - began_s < BCRYPT_S + 1.0 < LOG_IN_TIMEOUT_S

    run(etcd, work, user="u", password="p")
