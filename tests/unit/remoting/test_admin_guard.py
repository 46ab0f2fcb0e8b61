"""Who may administer: this machine and whom the operator names."""

import pytest

from rocketpy.codes import RequestCode, ResponseCode
from rocketpy.errors import RequestRefused
from rocketpy.remoting.admin_guard import AdminGuard, parse_networks

GUARD = AdminGuard.of("10.0.0.7, 10.1.0.0/16", ("192.0.2.1", "0.0.0.0", "a.name.not.an.address"))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "::1", "10.0.0.7", "10.1.200.3", "192.0.2.1", "::ffff:127.0.0.1"]
)
def test_friends(host: str) -> None:
    GUARD.check(RequestCode.UPDATE_AND_CREATE_TOPIC, host)


@pytest.mark.parametrize("host", ["10.0.0.8", "192.0.2.2", "2001:db8::1", "::ffff:10.0.0.8"])
def test_strangers_may_use_the_server_but_not_administer_it(host: str) -> None:
    GUARD.check(RequestCode.HEART_BEAT, host)
    GUARD.check(RequestCode.REGISTER_BROKER, host)
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_BROKER_CONFIG, RequestCode.PUT_KV_CONFIG):
        with pytest.raises(RequestRefused) as refused:
            GUARD.check(code, host)
        assert refused.value.response_code == ResponseCode.NO_PERMISSION
        assert host in str(refused.value)


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        parse_networks("10.0.0.1, nonsense")
