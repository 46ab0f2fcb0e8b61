"""Settings that the core reads: `c` of a declaration names a field of a struct, which holds every allowed value."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from rocketpy.config import BrokerSettings
from rocketpy.config.setting import Declared
from rocketpy.config.settings import evolve_parts, known_settings
from rocketpy.native.core import ffi
from tests.support.rules import hold


def declared_for_c() -> Iterator[tuple[str, Declared]]:
    """(part, setting) of each."""
    for declarations in known_settings(BrokerSettings()).values():
        for part, declared in declarations:
            if declared.setting.c:
                yield part, declared


def test_each_field_is_there_and_of_one_setting() -> None:
    places = [(place, declared.setting.key) for _, declared in declared_for_c() for place in declared.setting.c]
    assert len(places) > 30, "the rule finds no settings"

    def is_field(place: str) -> bool:
        struct, _, field = place.partition(".")
        return field in dict(ffi.typeof(struct).fields or ())

    hold((f"{key}: {place}" for place, key in places if not is_field(place)), "name a field of a struct of csrc/")
    assert len({place for place, _ in places}) == len(places), "two settings fill one field"


def test_each_field_holds_the_largest_value() -> None:
    largest = {
        (part, declared.attribute): declared.setting.at_most
        for part, declared in declared_for_c()
        if declared.type is int
    }
    settings = evolve_parts(BrokerSettings(), largest)
    for struct in sorted({place.partition(".")[0] for _, found in declared_for_c() for place in found.setting.c}):
        fields = settings.c_fields(struct)
        filled = ffi.new(f"{struct} *", fields)
        assert {name: getattr(filled, name) for name in fields} == fields


def test_a_duration_is_given_in_the_unit_of_the_field() -> None:
    default = BrokerSettings()
    settings = attrs.evolve(default, store=attrs.evolve(default.store, slave_timeout=7))
    assert settings.c_fields("rp_send_config")["slave_timeout_ms"] == 7
    assert settings.c_fields("rp_master_config")["stall_ns"] == 7_000_000
    assert settings.c_fields("rp_send_config")["timer_max_delay_ms"] == 259_200_000
    assert settings.c_fields("rp_selector_config")["spin_us"] == default.rocketpy.spin_micros
