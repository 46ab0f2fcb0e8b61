"""Version names and numbers and the code sets."""

import pytest

from rocketpy.codes import (
    OUR_VERSION,
    RETRIABLE_RESPONSE_CODES,
    STORED_RESPONSE_CODES,
    MQVersion,
    RequestCode,
    version_name,
)
from tests.support.cases import cases


@cases(
    "number, name",
    [
        (0, "V3_0_0_SNAPSHOT"),
        (15, "V3_0_0_FINAL"),
        (28, "V3_0_7_SNAPSHOT"),
        (37, "V3_0_11"),
        (62, "V3_1_8_SNAPSHOT"),
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (232, "V4_1_0_SNAPSHOT"),
        (317, "V4_5_2"),
        (399, "V4_9_3"),
        (401, "V4_9_4"),
        (409, "V4_9_8"),
        (411, "V4_9_9"),
        (413, "V5_0_0"),
        (473, "V5_3_0"),
        (479, "V5_3_3"),
        (611, "V5_9_9"),
        (612, "HIGHER_VERSION"),
    ],
)
def test_versions_by_number(number: int, name: str) -> None:
    assert version_name(number) == name


@pytest.mark.parametrize("number", [-1, 613, 1 << 20])
def test_numbers_outside_the_table(number: int) -> None:
    assert version_name(number) == "HIGHER_VERSION"


def test_named_versions_are_in_the_table() -> None:
    assert all(version_name(version) == version.name for version in MQVersion)
    assert OUR_VERSION == 409


def test_code_sets() -> None:
    assert sorted(RETRIABLE_RESPONSE_CODES) == [1, 14, 16, 17, 204, 205]
    assert sorted(STORED_RESPONSE_CODES) == [0, 10, 11, 12]
    assert RequestCode.LITE_PULL_MESSAGE == 361
