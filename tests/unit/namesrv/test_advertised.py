"""A broker with several addresses: who asks is told the one that he can use."""

from __future__ import annotations

import json

import pytest

from rocketpy.codes import RequestCode
from rocketpy.errors import RequestRefused
from tests.support.name_server import FOUR_QUEUES, Asker, registration_fields, text

ADVERTISED = "outside=shop.example.org:20911;10.1.0.0/16=10.1.0.5:10911"
HA_ADVERTISED = "outside=shop.example.org:20912;10.1.0.0/16=10.1.0.5:10912"
OWN, OUTSIDE, NETWORK = "127.0.0.1:4444", "shop.example.org:20911", "10.1.0.5:10911"


def register(asker: Asker) -> None:
    asker.register({"T": FOUR_QUEUES}, advertisedAddrs=ADVERTISED, advertisedHaAddrs=HA_ADVERTISED)


def test_routes_and_clusters(asker: Asker) -> None:
    register(asker)

    def seen(**where: str) -> list[str]:
        route = json.loads(text(asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}, version=453, **where)))
        info = json.loads(text(asker.ask(RequestCode.GET_BROKER_CLUSTER_INFO, **where)))
        system = json.loads(text(asker.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, **where)))
        (broker,) = route["brokerDatas"]
        return [broker["brokerAddrs"]["0"], info["brokerAddrTable"]["pb"]["brokerAddrs"]["0"], system["brokerAddr"]]

    assert seen() == [OWN] * 3
    assert seen(listener="outside", host="10.1.7.7") == [OUTSIDE] * 3
    assert seen(listener="unknown") == [OWN] * 3
    assert seen(host="10.1.7.7") == [NETWORK] * 3
    assert seen(host="::ffff:10.1.7.7") == [NETWORK] * 3, "by a port that serves IPv6 and IPv4"
    assert seen(host="fd00::1") == [OWN] * 3
    asker.register({"T": FOUR_QUEUES, "U": FOUR_QUEUES})
    assert seen(host="10.1.7.7") == [OWN] * 3, "the last registration counts"


def test_a_slave_is_told_the_addresses_of_its_network(asker: Asker) -> None:
    register(asker)

    def master(**where: str) -> tuple[str | None, str | None]:
        fields = registration_fields(brokerId="1", brokerAddr="10.1.0.6:10911")
        answer = asker.ask(RequestCode.REGISTER_BROKER, fields, b"{}", connection=9, **where)
        return answer.ext_field("masterAddr"), answer.ext_field("haServerAddr")

    assert master() == (OWN, "127.0.0.1:4445")
    assert master(host="10.1.0.6") == (NETWORK, "10.1.0.5:10912")
    assert master(listener="outside") == (OUTSIDE, "shop.example.org:20912")


def test_addresses_that_cannot_be_read_are_refused(asker: Asker) -> None:
    for field in ("advertisedAddrs", "advertisedHaAddrs"):
        with pytest.raises(RequestRefused, match=field):
            asker.register({"T": FOUR_QUEUES}, **{field: "10.0.0.0/8"})
    assert asker.routes.route("T") is None
