"""The property string of a message of a batch is that of its dictionary."""

from __future__ import annotations

import itertools

import pytest

from rocketpy.client.messages import Message, Reply
from rocketpy.client.sending.sender import property_text
from rocketpy.errors import MessageInvalid
from rocketpy.message import properties as names
from rocketpy.message.properties import decode_properties


@pytest.mark.parametrize("namespace", ["", "shop"])
def test_it_holds_what_the_dictionary_does(namespace: str) -> None:
    choices = itertools.product(
        (None, "paid", "größer"), ((), ("k1",), ("k1", "k2")), ({}, {"a": "1", "ü": "x y"}), (True, False)
    )
    for tags, keys, properties, wait_store in choices:
        message = Message("T", b"x", tags=tags, keys=keys, properties=properties, wait_store=wait_store)
        expected = message.to_properties() | {names.UNIQ_KEY: "id-1"}
        if namespace:
            expected[names.INSTANCE_ID] = namespace
        assert decode_properties(property_text(message, "id-1", namespace)) == expected


def test_a_message_of_another_class_says_itself_what_it_has() -> None:
    message = Reply("T", b"x", request_properties={names.CORRELATION_ID: "c"})
    expected = message.to_properties() | {names.UNIQ_KEY: "id-1"}
    assert decode_properties(property_text(message, "id-1")) == expected
    assert expected[names.CORRELATION_ID] == "c"


@pytest.mark.parametrize("separator", [names.NAME_VALUE_SEPARATOR, names.PROPERTY_SEPARATOR])
def test_separators_are_refused_wherever_they_are(separator: str) -> None:
    broken = f"a{separator}b"
    for message, msg_id in (
        (Message("T", b"x", tags=broken), "id"),
        (Message("T", b"x", keys=(broken,)), "id"),
        (Message("T", b"x", properties={broken: "v"}), "id"),
        (Message("T", b"x", properties={"n": broken}), "id"),
        (Message("T", b"x"), broken),
        (Message("T", b"x", tags=f"a{separator}b{names.PROPERTY_SEPARATOR}c{names.NAME_VALUE_SEPARATOR}d"), "id"),
    ):
        with pytest.raises(MessageInvalid, match="holds one of the separators"):
            property_text(message, msg_id)
