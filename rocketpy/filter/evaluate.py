"""Evaluation of a SQL92 expression for the properties of a message: TRUE, FALSE, or unknown (None).

Properties are texts. A property that is compared with a number is read as a number of that kind; if its text is none,
the evaluation fails and the message does not match. AND and OR stop at the first operand that decides. Callers that
have numbers beside properties give them as numbers of 64 bits. A missing property is unknown. The rules are asymmetric
in places, because the reference's are (tests/unit/filter/test_evaluate.py has them as a table).

csrc/store/filters/filter.c is the same in C (tests/property/test_filter_programs.py).

Source: RocketMQ 4.9 package `org.apache.rocketmq.filter.expression`.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from typing import TypeAlias, cast

from rocketpy.errors import NumberInvalid
from rocketpy.message.numbers import parse_int, parse_long

from .expression import And, Compare, Comparison, Constant, In, IsNull, Kind, Negate, Node, Not, Or, Property

Value: TypeAlias = bool | int | float | str | None
Typed: TypeAlias = tuple[Kind, Value]
Properties: TypeAlias = Mapping[str, str | int]
UNKNOWN: Typed = (Kind.UNKNOWN, None)
_WHOLE = {Kind.INT32: parse_int, Kind.INT64: parse_long}
NUMBER_SIZE_MAX = 255  # characters of a number, without blanks around it; a longer text is none
_BLANKS = "".join(map(chr, range(0x21)))
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?\Z")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?\Z")
_NAMED = re.compile(r"([+-]?)(NaN|Infinity)\Z")


class EvaluationError(Exception):
    """The expression cannot be evaluated for these properties."""


def matches(root: Node, properties: Properties) -> bool:
    """Return True if a message with these properties is selected."""
    try:
        return evaluate(root, properties) is True
    except EvaluationError:
        return False


def evaluate(root: Node, properties: Properties) -> bool | None:
    """TRUE, FALSE, or None for UNKNOWN, of a message with these properties. Raises: EvaluationError."""
    return _truth(_value(root, properties))


def _truth(typed: Typed) -> bool | None:
    """Return a value as a condition; a property alone is FALSE, also with the text `true`."""
    kind, value = typed
    return None if kind is Kind.UNKNOWN else value is True


def _value(node: Node, properties: Properties) -> Typed:
    if isinstance(node, Constant):
        return node.kind, node.value
    if isinstance(node, Property):
        value = properties.get(node.name)
        if isinstance(value, int):
            return Kind.INT64, value
        return UNKNOWN if value is None else (Kind.STRING, value)
    if isinstance(node, Negate):
        return _negated(_value(node.operand, properties))
    truth = _condition(node, properties)
    return UNKNOWN if truth is None else (Kind.BOOLEAN, truth)


def _negated(typed: Typed) -> Typed:
    kind, value = typed
    if kind in (Kind.INT32, Kind.INT64, Kind.DOUBLE):
        return kind, -cast(float, value)
    return UNKNOWN


def _condition(node: Node, properties: Properties) -> bool | None:
    if isinstance(node, And):
        return _sequence(node.operands, properties, decisive=False)
    if isinstance(node, Or):
        return _sequence(node.operands, properties, decisive=True)
    if isinstance(node, Not):
        truth = _truth(_value(node.operand, properties))
        return None if truth is None else not truth
    if isinstance(node, IsNull):
        return _value(node.operand, properties)[0] is Kind.UNKNOWN
    if isinstance(node, In):
        value = properties.get(node.operand.name)
        return None if value is None else (str(value) in node.values) is not node.negated
    assert isinstance(node, Compare)
    left, right = _value(node.left, properties), _value(node.right, properties)
    if node.comparison is Comparison.EQUAL:
        return _equal(left, right)
    return _ordered(node.comparison, left, right)


def _sequence(operands: tuple[Node, ...], properties: Properties, *, decisive: bool) -> bool | None:
    """Evaluate AND, where FALSE decides, or OR, where TRUE decides, up to the first operand that decides."""
    has_unknown = False
    for operand in operands:
        truth = _truth(_value(operand, properties))
        if truth is decisive:
            return decisive
        has_unknown = has_unknown or truth is None
    return None if has_unknown else not decisive


def _equal(left: Typed, right: Typed) -> bool | None:
    """Unknown on the left is unknown, on the right it is FALSE, on both sides it is TRUE."""
    if left[0] is Kind.UNKNOWN:
        return True if right[0] is Kind.UNKNOWN else None
    if right[0] is Kind.UNKNOWN:
        return False
    if left[0] is Kind.STRING and right[0] is Kind.STRING:
        return left[1] == right[1]
    pair = _alike(left, right)
    return pair is not None and _order(*pair) == 0


def _ordered(comparison: Comparison, left: Typed, right: Typed) -> bool | None:
    if Kind.UNKNOWN in (left[0], right[0]):
        return None
    if left[0] is Kind.STRING and right[0] is Kind.STRING:
        left, right = (Kind.DOUBLE, _read(left[1], Kind.DOUBLE)), (Kind.DOUBLE, _read(right[1], Kind.DOUBLE))
    pair = _alike(left, right)
    if pair is None:
        return False
    order = _order(*pair)
    return {
        Comparison.GREATER: order > 0,
        Comparison.GREATER_EQUAL: order >= 0,
        Comparison.LESS: order < 0,
        Comparison.LESS_EQUAL: order <= 0,
    }[comparison]


def _alike(left: Typed, right: Typed) -> tuple[float, float] | None:
    """Both values as numbers of one kind; None: they can never be equal.

    Raises: EvaluationError (a text is not of the other value's kind).
    """
    if left[0] is Kind.BOOLEAN and right[0] is Kind.STRING:
        raise EvaluationError("a condition on the left cannot be compared with a text")
    kind = right[0] if left[0] is Kind.STRING else left[0] if right[0] is Kind.STRING else max(left[0], right[0])
    if kind is not Kind.BOOLEAN and Kind.BOOLEAN in (left[0], right[0]):
        return None
    return _as(left, kind), _as(right, kind)


def _as(typed: Typed, kind: Kind) -> float:
    value = typed[1]
    if typed[0] is Kind.STRING:
        return _read(value, kind)
    return float(cast(float, value)) if kind is Kind.DOUBLE else cast(int, value)


def _read(value: Value, kind: Kind) -> float:
    """The text of a property as a value of another kind. Raises: EvaluationError."""
    text = cast(str, value)
    if kind is Kind.BOOLEAN:
        return text.lower() == "true"
    if len(text) > NUMBER_SIZE_MAX:  # with its blanks: a look at a message takes a bounded time
        raise EvaluationError(f"a number of more than {NUMBER_SIZE_MAX} bytes: {text[:40]!r}")
    try:
        number = floating(text) if kind is Kind.DOUBLE else _WHOLE[kind](text)
    except NumberInvalid as exc:
        raise EvaluationError(str(exc)) from None
    if number is None:
        raise EvaluationError(f"not a number: {text[:40]!r}")
    return number


def _order(left: float, right: float) -> int:
    """As `Double.compareTo`: NaN is greater than all others and equal to itself, -0.0 is less than 0.0."""
    if left < right:
        return -1
    if left > right:
        return 1
    if not (isinstance(left, float) and isinstance(right, float)):
        return 0
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    return 2 if math.isnan(value) else 0 if struct.pack(">d", value)[0] & 0x80 else 1


def floating(text: str) -> float | None:
    """Read a number with fraction as Java's `Double.parseDouble` does; None: it is none.

    csrc/base/numbers.c is the same in C.
    """
    text = text.strip(_BLANKS)
    if len(text) > NUMBER_SIZE_MAX:
        return None
    if found := _DECIMAL.match(text):
        return float(found[1])
    if found := _HEXADECIMAL.match(text):
        return _hexadecimal(found[1])
    if found := _NAMED.match(text):
        return float(found[1] + {"NaN": "nan", "Infinity": "inf"}[found[2]])
    return None


def _hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return float("-inf") if text.startswith("-") else float("inf")
