"""A SQL92 expression as a program for a stack machine, which csrc/store/filters/filter.c runs for each message.

A program, big-endian:

    1     version, 1
    1     number of names
    2     size of the code
          names of properties, each 2 bytes of size and its bytes
          code

The code works on a stack of values. Its jumps go forward only, so it ends after as many steps as it has instructions.
The value that is left is the result.
"""

from __future__ import annotations

import enum
import struct

from .expression import And, Compare, Comparison, Constant, In, IsNull, Kind, Negate, Node, Not, Or, Property

VERSION = 1
SIZE_MAX = 65_535  # bytes of code; the limits of the parser keep it below


class Op(enum.IntEnum):
    """Instructions, with what follows each. The numbers are those of csrc/store/filters/filter.c."""

    UNKNOWN = 1
    TRUE = 2
    FALSE = 3
    INT32 = 4  # 8 bytes, signed
    INT64 = 5  # 8 bytes, signed
    DOUBLE = 6  # 8 bytes
    STRING = 7  # 2 bytes of size, text
    PROPERTY = 8  # 1 byte: number of the name
    NEGATE = 9
    NOT = 10
    EQUAL = 11
    GREATER = 12
    GREATER_EQUAL = 13
    LESS = 14
    LESS_EQUAL = 15
    IS_NULL = 16
    IN = 17  # 1 byte: negated; 2 bytes: number of texts; the texts, each with its size
    AND = 18
    OR = 19
    SKIP_IF_FALSE = 20  # 2 bytes: how much code to skip, with FALSE as the value
    SKIP_IF_TRUE = 21


COMPARISONS = {
    Comparison.EQUAL: Op.EQUAL,
    Comparison.GREATER: Op.GREATER,
    Comparison.GREATER_EQUAL: Op.GREATER_EQUAL,
    Comparison.LESS: Op.LESS,
    Comparison.LESS_EQUAL: Op.LESS_EQUAL,
}


def compile_program(root: Node) -> bytes:
    """The program of a tree that `parser.parse` has made."""
    names: dict[str, int] = {}
    code = _code(root, names)
    assert len(code) <= SIZE_MAX
    return struct.pack(">BBH", VERSION, len(names), len(code)) + b"".join(map(_sized, names)) + code


def _sized(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data


def _code(node: Node, names: dict[str, int]) -> bytes:
    if isinstance(node, Constant):
        return _constant(node)
    if isinstance(node, Property):
        return bytes((Op.PROPERTY, names.setdefault(node.name, len(names))))
    if isinstance(node, And):
        return _sequence(node.operands, names, Op.AND, Op.SKIP_IF_FALSE)
    if isinstance(node, Or):
        return _sequence(node.operands, names, Op.OR, Op.SKIP_IF_TRUE)
    if isinstance(node, Compare):
        return _code(node.left, names) + _code(node.right, names) + bytes((COMPARISONS[node.comparison],))
    operand = _code(node.operand, names)
    if isinstance(node, In):
        head = struct.pack(">BBH", Op.IN, node.negated, len(node.values))
        return operand + head + b"".join(map(_sized, node.values))
    return operand + bytes(({Negate: Op.NEGATE, Not: Op.NOT, IsNull: Op.IS_NULL}[type(node)],))


def _constant(node: Constant) -> bytes:
    if node.kind is Kind.UNKNOWN:
        return bytes((Op.UNKNOWN,))
    if node.kind is Kind.BOOLEAN:
        return bytes((Op.TRUE if node.value else Op.FALSE,))
    if node.kind is Kind.STRING:
        assert isinstance(node.value, str)
        return bytes((Op.STRING,)) + _sized(node.value)
    if node.kind is Kind.DOUBLE:
        return struct.pack(">Bd", Op.DOUBLE, node.value)
    return struct.pack(">Bq", Op.INT32 if node.kind is Kind.INT32 else Op.INT64, node.value)


def _sequence(operands: tuple[Node, ...], names: dict[str, int], combine: Op, skip: Op) -> bytes:
    """`a, skip to the end, b, combine, skip to the end, c, combine`."""
    code = b""
    for number, operand in reversed(list(enumerate(operands))):
        piece = _code(operand, names) + (bytes((combine,)) if number else b"")
        if code:
            piece += struct.pack(">BH", skip, len(code))
        code = piece + code
    return code
