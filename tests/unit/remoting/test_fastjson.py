"""The fastjson dialect: what is written, what is read, what is refused."""

import math

import pytest

from rocketpy.codes import LanguageCode
from rocketpy.errors import BodyInvalid
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.sys_flag import PermName
from rocketpy.remoting import fastjson
from rocketpy.remoting.fastjson import JsonValue, dump_text, dumps, java_double, loads
from tests.support.cases import cases

MQ = MessageQueue("T", "broker-a", 0)
MQ_TEXT = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'


@cases(
    "value, text",
    [
        ({"b": 1, "a": None, "c": [True, None]}, '{"b":1,"c":[true,null]}'),
        ({3: 1, 1: 2}, "{1:2,3:1}"),
        ({"perm": PermName.READ | PermName.WRITE}, '{"perm":6}'),
        ({MQ: 5}, "{" + MQ_TEXT + ":5}"),
        ([0.0, math.nan, -math.inf], "[0.0,null,null]"),
        (b"ab", '"YWI="'),
        (LanguageCode.GO, '"GO"'),
        ('\x01Ω"\ud800', '"\\u0001Ω\\"?"'),
        (1 << 62, str(1 << 62)),
    ],
)
def test_written_as_fastjson_does(value: object, text: str) -> None:
    """Fault: A registration spelled its permission by name, and the name server refused the broker."""
    assert dumps(value).decode() == text


@cases(
    "value, text",
    [
        (0.0, "0.0"),
        (12.5, "12.5"),
        (0.001, "0.001"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (1e-5, "1.0E-5"),
        (0.00012, "1.2E-4"),
        (123456789.25, "1.2345678925E8"),
        (1e300, "1.0E300"),
        (-2.5e-7, "-2.5E-7"),
    ],
)
def test_doubles_as_java_spells_them(value: float, text: str) -> None:
    assert java_double(value) == text
    assert float(text) == value


def test_what_has_no_json_form_is_our_bug() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps(object())


@cases(
    "text, value",
    [
        ('{"a":1}', {"a": 1}),
        ("{0:1, -1 : 2}", {"0": 1, "-1": 2}),
        ("{" + MQ_TEXT + ":{1:2}}", {MQ_TEXT: {"1": 2}}),
        ("{a:'b\\'c', 'd' : [1,2,],}", {"a": "b'c", "d": [1, 2]}),
        ("[1.5e3,-7,1L,NaN]", [1500.0, -7, 1, None]),
        ('["\\ud83d\\ude00", {x:"\\ud83d\\ude00\\u0041\\x41\\n"}]', ["😀", {"x": "😀AA\n"}]),
        ('"a\tb"', "a\tb"),
        ("[true,false,null,undefined]", [True, False, None, None]),
        (' {"a" : { } } \n', {"a": {}}),
    ],
)
def test_read_leniently(text: str, value: JsonValue) -> None:
    read = loads(text.encode())
    if isinstance(read, list):
        read = [None if isinstance(element, float) and math.isnan(element) else element for element in read]
    assert read == value


def test_lone_surrogates_become_question_marks() -> None:
    assert loads(b'["\\ud800x"]') == ["?x"]
    tolerant = loads(b"['\\ud800x']")
    assert isinstance(tolerant, list) and str(tolerant[0]).encode("utf-8")


@cases(
    "data",
    [
        b"",
        b"{",
        b"[1",
        b'{"a"}',
        b'{"a":}',
        b"{1 2}",
        b'"abc',
        b"'abc",
        b"[1 2]",
        b"{}x",
        b"\xff",
        b"nope",
        b'["\\u12"]x',
        b"['\\u12z']",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"{" * 100_000,
        b"9" * 10_000,
        b"[" * 70 + b"1" + b",]" * 70,
    ],
)
def test_refused(data: bytes) -> None:
    with pytest.raises(BodyInvalid):
        loads(data)


def test_deep_nesting_with_surrogates_is_refused_too() -> None:
    data = b"[" * 900 + b'"\\ud800"' + b"]" * 900
    try:
        loads(data)
    except BodyInvalid as exc:
        assert "nested" in str(exc)


def test_bare_integer_keys_are_read_as_texts_and_texts_stay() -> None:
    """Holds: trap, JSON with whole numbers or objects as keys."""
    text = b'{"T@{1:2}":{0:12,-3 : 7},"q\\"{5:6":[{8:{9:1}}]}'
    assert loads(text) == {"T@{1:2}": {"0": 12, "-3": 7}, 'q"{5:6': [{"8": {"9": 1}}]}
    assert loads(b"{1:{a:2,}}") == {"1": {"a": 2}}, "and what is odder still, as before"


def test_tables_of_queues_do_not_need_the_tolerant_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets of a thousand queues took it 60 ms."""
    table = {MessageQueue(topic, "broker-a", number): number for number in (0, 7, 1000) for topic in ("T", "é:{,")}
    text = dumps({"table": table, "inner": [{MQ: {MQ: 1}}]})
    tolerant = fastjson._Reader(text.decode()).read()
    monkeypatch.setattr(fastjson, "_Reader", None)
    assert loads(text) == tolerant


@pytest.mark.parametrize(
    "key",
    [
        '{"brokerName":"b", "queueId":0,"topic":"T"}',
        '{"queueId":0,"brokerName":"b","topic":"T"}',
        '{"brokerName":"b","queueId":00,"topic":"T"}',
        '{"brokerName":"b\\"","queueId":0,"topic":"T"}',
        '{"brokerName":"b","queueId":-1,"topic":"T"}',
    ],
)
def test_queues_in_another_spelling_are_keys_too(key: str) -> None:
    assert loads(("{" + key + ":1}").encode()) == {dump_text(loads(key.replace(":00", ":0").encode())): 1}


@pytest.mark.parametrize("end", ["", "x"])
def test_text_that_never_ends_its_string_is_looked_at_once(end: str) -> None:
    """Each quote in it began a search to the end of the text: a body of 120 KB stopped a process for ten seconds.
    Fault: A body of 120 KB of escaped quotes blocked the manager or the name server until it was killed."""
    with pytest.raises(BodyInvalid):
        loads(b"{" + (b'\\"' + end.encode()) * 500_000)


def test_the_tolerant_parser_is_for_short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault: An answer of 16 MiB that is not quite JSON blocked a client for half a minute."""
    monkeypatch.setattr(fastjson, "TOLERANT_MAX", 20)
    assert loads(b"[" + b"1," * 9 + b"]") == [1] * 9
    with pytest.raises(BodyInvalid, match="body of 22 characters is not JSON"):
        loads(b"[" + b"1," * 10 + b"]")
    assert loads(b"{" + b"1:2," * 10 + b"3:4}") == {"1": 2, "3": 4}, "which is read fast"


def test_strictly_read_is_only_what_is_json() -> None:
    assert loads(b'{"a":1}', is_strict=True) == {"a": 1}
    for text in (b"{a:1}", b'{1:"a"}', b"{'a':1}", b'{"a":1,}'):
        assert loads(text)
        with pytest.raises(BodyInvalid, match="not JSON"):
            loads(text, is_strict=True)


def test_a_key_within_a_key_is_refused() -> None:
    """Written as text within text, each level doubled its size: 70 bytes became 256 KB, 100 more than there is.
    Fault: Nested JSON keys doubled the memory at each level, so a body of 110 bytes would have taken all of it."""
    depth = 40
    with pytest.raises(BodyInvalid, match="an object within a key"):
        loads(b"{" * depth + b'"a":1' + b"}:1" * (depth - 1) + b"}")
