"""Mutants of a Python source: comparisons turned, statements dropped, conditions fixed, numbers moved by one.

A mutant is the text of the source with one expression or statement replaced, so that line numbers hold for all that is
above it. Docstrings, annotations, assertions and calls that log are left alone: no test should depend on them.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

import attrs

COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
LOGGING = ("_logger.", "logger.", "logging.", "warnings.")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@attrs.frozen
class Mutant:
    """One replacement in a source."""

    line: int
    last_line: int
    start: int
    end: int
    text: str

    @property
    def is_drop(self) -> bool:
        """Return True if a statement is left out or a condition is fixed: the mutants that say most."""
        return self.text in ("pass", "return None", "True", "False")

    def apply(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]

    def shown(self, source: str) -> str:
        """Return the replaced text and its replacement, each on one line."""
        return f"{' '.join(source[self.start : self.end].split())}  ->  {' '.join(self.text.split())}"


def mutants_of(source: str) -> list[Mutant]:
    """List every mutant of `source` in the order of its lines; none of them fails to compile."""
    tree = ast.parse(source)
    found = dict.fromkeys(_Mutator(source).visit_all(tree))
    made = [mutant for mutant in found if _compiles(mutant.apply(source))]
    return sorted(made, key=lambda mutant: (mutant.line, mutant.start, mutant.text))


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class _Mutator:
    """Walk the tree and replace one node at a time."""

    def __init__(self, source: str) -> None:
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._source_lines = source.splitlines(keepends=True)
        # Parts of a condition, and constant indices: a condition that is fixed or lacks a part asks more of the tests.
        self._covered: set[ast.expr] = set()

    def visit_all(self, node: ast.AST, may_return_nothing: bool = False) -> Iterator[Mutant]:
        """`may_return_nothing`: the function around `node` may return None or a bool."""
        for child in self._changeable(node):
            inside = may_return_nothing
            if isinstance(child, Function):
                inside = _is_optional_or_bool(child.returns)
            elif isinstance(child, ast.expr):
                yield from (self._mutant(child, new) for new in self._expressions(child))
            elif isinstance(child, ast.stmt):
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                    continue
                yield from (self._mutant(child, new) for new in self._statements(child, may_return_nothing))
                yield from (self._mutant(test, new) for test, new in self._conditions(child))
            yield from self.visit_all(child, inside)

    @staticmethod
    def _changeable(node: ast.AST) -> Iterator[ast.AST]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params", "type_comment"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_left_alone(child):
                    yield child

    def _mutant(self, node: ast.expr | ast.stmt, new: str) -> Mutant:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)
        return Mutant(node.lineno, node.end_lineno, start, end, new)

    def _at(self, line: int, column_bytes: int) -> int:
        text = self._source_lines[line - 1].encode()[:column_bytes].decode()
        return self._lines[line - 1] + len(text)

    def _expressions(self, node: ast.expr) -> Iterator[str]:
        match node:
            case ast.Compare():
                for position, op in enumerate(node.ops):
                    others = COMPARISONS[type(op)]
                    for other in others[: len(others) - 1] if node in self._covered else others:
                        new = copy.deepcopy(node)
                        new.ops[position] = other()
                        yield f"({ast.unparse(new)})"
            case ast.BoolOp():
                self._covered.update(node.values)
                for position in range(len(node.values)):
                    new_bool = copy.deepcopy(node)
                    del new_bool.values[position]
                    yield f"({ast.unparse(new_bool)})"
            case ast.UnaryOp(op=ast.Not()) if node not in self._covered:
                yield f"bool({ast.unparse(node.operand)})"
            case ast.BinOp() if type(node.op) in ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
                new_binary = copy.deepcopy(node)
                new_binary.op = ARITHMETIC[type(node.op)]()
                yield f"({ast.unparse(new_binary)})"
            case ast.Subscript(slice=ast.Constant() as index):
                self._covered.add(index)
            case ast.Constant(value=bool()):
                yield str(not node.value)
            case ast.Constant(value=int() | float()) if node not in self._covered:
                yield f"({node.value!r} + 1)"
            case ast.IfExp():
                self._covered.add(node.test)
                yield f"({ast.unparse(node.body)})"
                yield f"({ast.unparse(node.orelse)})"
            case ast.Name() if node.id in NAMES:
                yield NAMES[node.id]

    def _statements(self, node: ast.stmt, may_return_nothing: bool) -> Iterator[str]:
        match node:
            case ast.Expr(value=ast.Yield() | ast.YieldFrom()):
                return
            case ast.Expr() | ast.AugAssign() | ast.Raise() | ast.Delete() | ast.Continue() | ast.Break():
                yield "pass"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield "pass"
            case ast.Return(value=ast.expr() as value) if may_return_nothing:
                if ast.unparse(value) not in ("None", "False"):
                    yield "return None"

    def _conditions(self, node: ast.stmt) -> Iterator[tuple[ast.expr, str]]:
        if isinstance(node, ast.If | ast.While):
            self._covered.add(node.test)
        if isinstance(node, ast.If):
            yield from ((node.test, "True"), (node.test, "False"))
        elif isinstance(node, ast.While) and ast.unparse(node.test) != "True":
            yield node.test, "False"


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True  # a docstring, or `...`
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    return isinstance(node, ast.Expr) and ast.unparse(node.value).removeprefix("self.").startswith(LOGGING)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_optional_or_bool(annotation: ast.expr | None) -> bool:
    """Return True if a caller may take None for an answer: other functions cannot return None unnoticed."""
    text = ast.unparse(annotation) if annotation else ""
    return text != "None" and ("None" in text or text == "bool")
