"""The tree of a SQL92 expression, and the rules that each kind of node has for its operands.

Source: RocketMQ 4.9 `SelectorParser`, package `org.apache.rocketmq.filter.expression`, as its answers show
(tests/interop/test_filter_expressions.py).
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import attrs

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class Kind(enum.IntEnum):
    """The kinds of values. The numbers are those of csrc/store/filters/filter.c."""

    UNKNOWN = 0
    BOOLEAN = 1
    INT32 = 2  # a whole number that fits 32 bits: properties compared with it are read as such
    INT64 = 3
    DOUBLE = 4
    STRING = 5


class Comparison(enum.Enum):
    EQUAL = "="
    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


@attrs.frozen
class Constant:
    """A literal; its value is None for UNKNOWN."""

    kind: Kind
    value: bool | int | float | str | None

    @property
    def is_number(self) -> bool:
        return self.kind in (Kind.INT32, Kind.INT64, Kind.DOUBLE)


@attrs.frozen
class Property:
    name: str


@attrs.frozen
class Negate:
    operand: Node


@attrs.frozen
class Not:
    operand: Node


@attrs.frozen
class Compare:
    comparison: Comparison
    left: Node
    right: Node


@attrs.frozen
class IsNull:
    operand: Node


@attrs.frozen
class In:
    """A test that the property is one of the values; with `negated`, none of them. Unknown if it is missing."""

    operand: Property
    values: tuple[str, ...]
    negated: bool


@attrs.frozen
class And:
    operands: tuple[Node, ...]


@attrs.frozen
class Or:
    operands: tuple[Node, ...]


Node: TypeAlias = Constant | Property | Negate | Not | Compare | IsNull | In | And | Or


class OperandError(ValueError):
    """The operands of a node are not of the kinds that it takes; the text says which."""


def integer(value: int) -> Constant:
    """A whole number, of 32 bits if it fits. Raises: OperandError (more than 64 bits)."""
    if value > INT64_MAX:
        raise OperandError(f"the number {value} is greater than {INT64_MAX}")
    return Constant(Kind.INT32 if value <= INT32_MAX else Kind.INT64, value)


def floating(text: str) -> Constant:
    """A number with a point or an exponent.

    Raises:
        OperandError: it is not representable; the reference refuses 0.0 as well.
    """
    value = float(text)
    if value == 0.0:
        raise OperandError(f"the number {text} is smaller than every number but 0; write 0")
    if value == float("inf"):
        raise OperandError(f"the number {text} is too large")
    return Constant(Kind.DOUBLE, value)


def is_condition(node: Node) -> bool:
    """Return True if the node can be an operand of AND, OR and NOT, and a whole expression."""
    if isinstance(node, Constant):
        return node.kind in (Kind.BOOLEAN, Kind.UNKNOWN)
    return not isinstance(node, Negate)


def condition(node: Node) -> Node:
    if not is_condition(node):
        raise OperandError(f"{describe(node)} is not a condition")
    return node


def compared(comparison: Comparison, left: Node, right: Node) -> Compare:
    """`left = right`, `left < right` ... Raises: OperandError."""
    if comparison is Comparison.EQUAL:
        for operand in (left, right):
            if isinstance(operand, Constant) and operand.kind is Kind.UNKNOWN:
                raise OperandError("nothing is equal to NULL; write IS NULL or IS NOT NULL")
        kinds = [operand.kind for operand in (left, right) if isinstance(operand, Constant)]
        if len(kinds) == 2 and kinds[0] is Kind.BOOLEAN and kinds[1] is not Kind.BOOLEAN:
            raise OperandError(f"{describe(left)} cannot be compared with {describe(right)}")
    else:
        for operand in (left, right):
            _check_ordered(operand)
    return Compare(comparison, left, right)


def _check_ordered(operand: Node) -> None:
    if isinstance(operand, Property | Negate) or (isinstance(operand, Constant) and operand.is_number):
        return
    raise OperandError(f"{describe(operand)} is not a number: < <= > >= and BETWEEN compare numbers and properties")


def between(operand: Node, low: Node, high: Node, *, negated: bool) -> Node:
    """`operand BETWEEN low AND high`, as two comparisons. Raises: OperandError."""
    if negated:
        return Or((compared(Comparison.LESS, operand, low), compared(Comparison.GREATER, operand, high)))
    if isinstance(low, Constant) and isinstance(high, Constant) and low.is_number and high.is_number:
        assert isinstance(low.value, int | float) and isinstance(high.value, int | float)
        if low.value > high.value:
            raise OperandError(f"BETWEEN {low.value} AND {high.value}: the first number is greater than the second")
    return And((compared(Comparison.GREATER_EQUAL, operand, low), compared(Comparison.LESS_EQUAL, operand, high)))


def contained(operand: Node, values: tuple[str, ...], *, negated: bool) -> In:
    """`property IN ('a', 'b')`. Raises: OperandError."""
    if not isinstance(operand, Property):
        raise OperandError(f"{describe(operand)} is not a property: only a property can be IN a list")
    return In(operand, values, negated)


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, And | Or):
        return node.operands
    if isinstance(node, Compare):
        return node.left, node.right
    if isinstance(node, Negate | Not | IsNull | In):
        return (node.operand,)
    return ()


def describe(node: Node) -> str:
    """The node in an error message."""
    if isinstance(node, Constant):
        if node.kind is Kind.STRING:
            return f"the text {node.value!r}"
        return {None: "NULL", True: "TRUE", False: "FALSE"}.get(node.value, f"the number {node.value}")  # type: ignore[arg-type]
    if isinstance(node, Property):
        return f"the property {node.name}"
    return "a negated value" if isinstance(node, Negate) else "a condition"
