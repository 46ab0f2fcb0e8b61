"""Bounds of tables that anybody can fill."""

import pytest

from rocketpy.errors import RequestRefused
from rocketpy.remoting.limits import Limit, TableSize, require


def test_one_too_many_is_refused_with_the_setting_and_counted() -> None:
    limit = Limit("groups", "groupsMax", lambda: 3)
    limit.check(2)
    limit.check(0, 3)
    with pytest.raises(RequestRefused, match="there are 3 groups; 1 more would exceed groupsMax=3"):
        limit.check(3)
    limit.check(9, 0)  # what is there is served, though the setting was lowered
    assert limit.size(3) == TableSize("groups", 3, 3, 1)


def test_a_name_that_is_none_is_refused_in_its_own_words() -> None:
    require(None)
    with pytest.raises(RequestRefused, match="blank"):
        require("the group is blank")
