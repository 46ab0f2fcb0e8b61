"""advertisedAddresses and listeners: what they mean, and what is refused."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from rocketpy.config import Advertised, load_broker_config, load_namesrv_config
from rocketpy.config.advertised import parse_listeners
from rocketpy.errors import ConfigError
from tests.support.cases import cases

TEXT = "outside=shop.example.org:20911; 10.0.0.0/8=10.0.0.5; 10.1.0.0/16=10.1.0.5:30911;fd00::/8=[fd00::5]:10911"


@cases(
    "listener, host, address",
    [
        ("outside", "10.1.2.3", "shop.example.org:20911"),
        ("", "10.1.2.3", "10.1.0.5:30911"),
        ("other", "10.2.2.3", "10.0.0.5:10911"),
        ("", "fd00::77", "[fd00::5]:10911"),
        ("", "192.168.1.1", None),
        ("", "2001:db8::1", None),
    ],
)
def test_the_listener_decides_and_then_the_smallest_network(listener: str, host: str, address: str | None) -> None:
    advertised = Advertised.parse(TEXT, 10911)
    assert advertised.seen_by(listener, ipaddress.ip_address(host)) == address
    assert Advertised.parse(str(advertised), 0) == advertised, "its text means the same to a name server"


def test_ports_of_slaves_are_the_next_ones() -> None:
    assert str(Advertised.parse("a=[::1];b=h:65534", 10911, shift=1)) == "a=[::1]:10912;b=h:65535"
    assert Advertised.parse(str(Advertised.parse("b=h:65534", 0, shift=1)), 0).listeners == {"b": "h:65535"}


def test_hosts_for_certificates() -> None:
    hosts = Advertised.parse(TEXT, 10911).hosts
    assert sorted(hosts) == ["10.0.0.5", "10.1.0.5", "fd00::5", "shop.example.org"]


@cases(
    "text, reason",
    [
        ("10.0.0.5:10911", "WHERE=HOST:PORT"),
        ("10.0.0.0/33=h:10911", "no network"),
        ("9out=h:10911", "no network"),
        ("a=h:2", "so 3 to 65534"),
        ("a=h:65535", "so 3 to 65534"),
        ("a=h:port", "HOST:PORT"),
        ("a=h:", "HOST:PORT"),
        ("a=[::1", "HOST:PORT"),
        ("a=[1:2]:10911", "no network"),
        ("a=[host]:10911", "HOST:PORT"),
        ("a=::1:10911", "HOST:PORT"),
        ("a=:10911", "HOST:PORT"),
        ("a=h h:10911", "HOST:PORT"),
        ("a=h:10911;a=i:10911", "twice"),
        ("10.0.0.0/8=h:10911;10.0.0.1/8=i:10911", "twice"),
        (";".join(f"n{number}=h:10911" for number in range(65)), "65 addresses"),
        ("a=h:10911;" + " " * 4096, "4106 characters"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Advertised.parse(text, 10911, shift=1)


@cases("text", ["outside=9877", "=h:9877", "a=h", "a=h:0", "a=h:70000", "a=h:1;a=h:2", "10.0.0.0/8=h:1"])
def test_listeners_that_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_listeners(text)


def test_mistakes_name_the_line(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("\nadvertisedAddresses=10.0.0.0/8\n")
    with pytest.raises(ConfigError, match=r"broker.conf:2: advertisedAddresses: '10.0.0.0/8' is not WHERE="):
        load_broker_config(file, {}, {"HOME": "/"})
    file.write_text("listeners=outside\n")
    with pytest.raises(ConfigError, match=r"listeners: "):
        load_namesrv_config(file, {}, {"HOME": "/"})


def test_settings_of_both_servers() -> None:
    home = {"HOME": "/", "ROCKETPY_ADVERTISED_ADDRESSES": "outside=shop.example.org"}
    broker = load_broker_config(None, {"listenPort": "10921", "brokerIP1": "10.0.0.5"}, home)
    assert (str(broker.advertised), str(broker.ha_advertised)) == (
        "outside=shop.example.org:10921",
        "outside=shop.example.org:10922",
    )
    own_network = load_broker_config(None, {"brokerIP1": "10.0.0.5", "brokerIP2": "10.9.0.5"}, home)
    assert str(own_network.ha_advertised) == "", "brokerIP2 is where all slaves dial"
    namesrv = load_namesrv_config(None, {"bindAddress": "::", "listeners": "outside=[::]:9877"}, {"HOME": "/"})
    assert namesrv.listeners == {"": ("::", 9876), "outside": ("::", 9877)}


def test_a_listener_that_others_reach_is_noted_like_the_main_port() -> None:
    """A name server on 127.0.0.1 took registrations of everybody who reached its other listener, without a word."""
    given = {"listeners": "outside=0.0.0.0:20911; local=127.0.0.1:9877"}
    (note,) = load_namesrv_config(None, given, {"HOME": "/"}).notes
    assert (note.key, note.text.partition(";")[0]) == (
        "listeners",
        "0.0.0.0: every host that reaches the port may read all routes and register a broker",
    )
    assert load_namesrv_config(None, given | {"adminAddresses": "10.0.0.0/8"}, {"HOME": "/"}).notes == ()
