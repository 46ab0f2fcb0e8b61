"""The grammar of SQL92 expressions, for lark. `parser.py` imports this module with the first text: lark takes 30 ms to
import, and the parser 25 ms to build.

The grammar is the reference's, with one difference: the whole text has to be an expression.

Source: RocketMQ 4.9 `SelectorParser`.
"""

from __future__ import annotations

from typing import Any, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken

from rocketpy.errors import FilterInvalid

from . import expression as tree
from .expression import And, Comparison, Constant, IsNull, Kind, Negate, Node, Not, OperandError, Or, Property

GRAMMAR = r"""
start: either
?either: both (_OR both)*
?both: equality (_AND equality)*
?equality: comparison
    | equality "=" comparison              -> equal
    | equality _DIFFERS comparison           -> not_equal
    | equality _IS _NULL                   -> is_null
    | equality _IS _NOT _NULL              -> is_not_null
?comparison: unary
    | comparison ORDER unary               -> ordered
    | comparison _BETWEEN unary _AND unary -> between
    | comparison _NOT _BETWEEN unary _AND unary -> not_between
    | comparison _IN texts                 -> contained
    | comparison _NOT _IN texts            -> not_contained
?unary: primary
    | "+" unary
    | "-" unary                            -> negate
    | _NOT unary                           -> invert
?primary: "(" either ")"
    | STRING                               -> text
    | DECIMAL                              -> decimal
    | FLOAT                                -> floating
    | _TRUE                                -> true
    | _FALSE                               -> false
    | _NULL                                -> null
    | NAME                                 -> named
texts: "(" STRING ("," STRING)* ")"

_DIFFERS.3: "<>"
ORDER: ">=" | "<=" | ">" | "<"
_OR.2: /OR(?![A-Z0-9_$])/i
_AND.2: /AND(?![A-Z0-9_$])/i
_NOT.2: /NOT(?![A-Z0-9_$])/i
_BETWEEN.2: /BETWEEN(?![A-Z0-9_$])/i
_IN.2: /IN(?![A-Z0-9_$])/i
_IS.2: /IS(?![A-Z0-9_$])/i
_TRUE.2: /TRUE(?![A-Z0-9_$])/i
_FALSE.2: /FALSE(?![A-Z0-9_$])/i
_NULL.2: /NULL(?![A-Z0-9_$])/i
NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
STRING: /'(?:[^']|'')*'/
FLOAT.1: /(?:[0-9]+\.[0-9]+(?:E[+-]?[0-9]+)?|\.[0-9]+(?:E[+-]?[0-9]+)?|[0-9]+E[+-]?[0-9]+)(?![A-Z0-9_$.])/i
DECIMAL: /(?:0|[1-9][0-9]*)L?(?![A-Z0-9_$.])/i
COMMENT.3: /--[^\r\n]*|\/\*(?:[^*]|\*(?!\/))*\*\//
BLANK: /[ \t\r\n\f]+/
%ignore COMMENT
%ignore BLANK
"""


class Builder(Transformer[Any, Node]):
    """Makes the nodes while the text is parsed."""

    def start(self, items: list[Node]) -> Node:
        return tree.condition(items[0])

    def either(self, items: list[Node]) -> Node:
        return Or(tuple(map(tree.condition, items)))

    def both(self, items: list[Node]) -> Node:
        return And(tuple(map(tree.condition, items)))

    def unary(self, items: list[Node]) -> Node:  # "+" alone comes here
        return items[0]

    def texts(self, items: list[Token]) -> tuple[str, ...]:
        return tuple(map(_unquoted, items))

    @v_args(inline=True)
    def equal(self, left: Node, right: Node) -> Node:
        return tree.compared(Comparison.EQUAL, left, right)

    @v_args(inline=True)
    def not_equal(self, left: Node, right: Node) -> Node:
        return Not(tree.compared(Comparison.EQUAL, left, right))

    @v_args(inline=True)
    def is_null(self, operand: Node) -> Node:
        return IsNull(operand)

    @v_args(inline=True)
    def is_not_null(self, operand: Node) -> Node:
        return Not(IsNull(operand))

    @v_args(inline=True)
    def ordered(self, left: Node, order: Token, right: Node) -> Node:
        return tree.compared(Comparison(str(order)), left, right)

    @v_args(inline=True)
    def between(self, operand: Node, low: Node, high: Node) -> Node:
        return tree.between(operand, low, high, negated=False)

    @v_args(inline=True)
    def not_between(self, operand: Node, low: Node, high: Node) -> Node:
        return tree.between(operand, low, high, negated=True)

    @v_args(inline=True)
    def contained(self, operand: Node, values: tuple[str, ...]) -> Node:
        return tree.contained(operand, values, negated=False)

    @v_args(inline=True)
    def not_contained(self, operand: Node, values: tuple[str, ...]) -> Node:
        return tree.contained(operand, values, negated=True)

    @v_args(inline=True)
    def negate(self, operand: Node) -> Node:
        return Negate(operand)

    @v_args(inline=True)
    def invert(self, operand: Node) -> Node:
        return Not(tree.condition(operand))

    @v_args(inline=True)
    def text(self, token: Token) -> Node:
        return Constant(Kind.STRING, _unquoted(token))

    @v_args(inline=True)
    def decimal(self, token: Token) -> Node:
        digits = token.rstrip("lL")
        if len(digits) > 19:  # int() of many digits is slow
            raise OperandError(f"the number {digits[:40]} is greater than {tree.INT64_MAX}")
        return tree.integer(int(digits))

    @v_args(inline=True)
    def floating(self, token: Token) -> Node:
        return tree.floating(str(token))

    @v_args(inline=True)
    def named(self, token: Token) -> Node:
        return Property(str(token))

    def true(self, items: list[Node]) -> Node:
        return Constant(Kind.BOOLEAN, True)

    def false(self, items: list[Node]) -> Node:
        return Constant(Kind.BOOLEAN, False)

    def null(self, items: list[Node]) -> Node:
        return Constant(Kind.UNKNOWN, None)


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


_PARSER = Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=Builder())


def read(text: str) -> Node:
    """The tree of a text. Raises: FilterInvalid."""
    try:
        return cast(Node, _PARSER.parse(text))
    except UnexpectedToken as exc:
        if exc.token.type == "$END":
            raise _too_short(exc.expected) from None
        raise _unexpected(text, exc.pos_in_stream, exc.expected) from None
    except UnexpectedCharacters as exc:
        raise _unexpected(text, exc.pos_in_stream, ()) from None
    except UnexpectedEOF as exc:
        raise _too_short(exc.expected) from None
    except OperandError as exc:
        raise FilterInvalid(str(exc)) from None


def _too_short(expected: Any) -> FilterInvalid:
    return FilterInvalid(f"the expression ends too early: {_wanted(expected)} is missing")


def _unexpected(text: str, position: int | None, expected: Any) -> FilterInvalid:
    at = position or 0
    rest = text[at:].split(maxsplit=1)
    found = rest[0][:40] if rest else "the end"
    if not expected:
        return FilterInvalid(f"character {at + 1}: {found!r} is no name, number, 'text' or operator")
    return FilterInvalid(f"character {at + 1}: {found!r} does not fit; expected {_wanted(expected)}")


WORDS = {
    "$END": "the end",
    "ORDER": "< <= > >=",
    "NAME": "a property",
    "STRING": "a 'text'",
    "DECIMAL": "a number",
    "FLOAT": "a number",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "EQUAL": "=",
    "PLUS": "+",
    "MINUS": "-",
    "_DIFFERS": "<>",
}


def _wanted(expected: Any) -> str:
    names = {WORDS.get(name, name.lstrip("_")) for name in expected or ()} - {"COMMENT", "BLANK"}
    return " or ".join(sorted(names)) or "an expression"
