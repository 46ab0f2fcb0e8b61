"""Who may administer: this machine and the addresses that the operator configures."""

import pytest

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.networks import parse_networks
from rocketpy.remoting.admin_guard import GUARDED_CODES, AdminGuard

GUARD = AdminGuard.of("10.0.0.7, 10.1.0.0/16", ("192.0.2.1", "0.0.0.0", "a.name.not.an.address"))
READ_BY_SLAVES = {
    RequestCode.GET_BROKER_CONFIG,
    RequestCode.GET_BROKER_HA_STATUS,
    RequestCode.GET_ALL_CONSUMER_FILTER,
}


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "10.0.0.7", "10.1.200.3", "192.0.2.1", "::ffff:127.0.0.1"]
)
def test_friends(host: str) -> None:
    GUARD.check(RequestCode.UPDATE_AND_CREATE_TOPIC, host)


@pytest.mark.parametrize("host", ["10.0.0.8", "192.0.2.2", "2001:db8::1", "::ffff:10.0.0.8"])
def test_strangers_may_use_the_server_but_not_administer_it(host: str) -> None:
    """Fault: Any client could ask a broker for all SQL92 filters and its slaves' addresses."""
    GUARD.check(RequestCode.HEART_BEAT, host)
    GUARD.check(RequestCode.REGISTER_BROKER, host)
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.PUT_KV_CONFIG):
        with pytest.raises(RequestRefused) as refused:
            GUARD.check(code, host)
        assert refused.value.response_code == ResponseCode.NO_PERMISSION
        assert host in str(refused.value)


def test_nobody_is_trusted_for_being_here_where_that_is_switched_off() -> None:
    guard = AdminGuard.of("10.0.0.7", ("192.0.2.1",), trusts_own=False)
    guard.check(RequestCode.UPDATE_AND_CREATE_TOPIC, "10.0.0.7")
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "192.0.2.1"):
        with pytest.raises(RequestRefused):
            guard.check(RequestCode.UPDATE_AND_CREATE_TOPIC, host)
    AdminGuard.of("127.0.0.1", trusts_own=False).check(RequestCode.UPDATE_AND_CREATE_TOPIC, "127.0.0.1")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_somebody_unknown_is_a_stranger(host: str) -> None:
    """It is what a proxy's client has for an address that the proxy cannot name; servers listen there as well."""
    with pytest.raises(RequestRefused):
        AdminGuard.of("", ("0.0.0.0", "::")).check(RequestCode.UPDATE_AND_CREATE_TOPIC, host)


def test_a_slave_may_read_what_it_copies_by_and_no_more() -> None:
    guard = AdminGuard.of("", peers="127.0.0.0/8, ::1, 10.0.0.7, 10.1.0.0/16", trusts_own=False)
    for host in ("10.0.0.7", "10.1.200.3"):
        for code in READ_BY_SLAVES:
            guard.check(code, host)
        for code in GUARDED_CODES - READ_BY_SLAVES:
            with pytest.raises(RequestRefused):
                guard.check(code, host)
    for host in ("10.0.0.8", "127.0.0.1", "::1", "::ffff:127.0.0.1"):  # behind a proxy on this machine may be anybody
        for code in READ_BY_SLAVES:
            with pytest.raises(RequestRefused):
                guard.check(code, host)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        parse_networks("10.0.0.1, nonsense")
