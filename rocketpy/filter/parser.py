"""From the text of a SQL92 expression to its tree.

The whole text has to be an expression. The reference stops at the first word that does not fit and ignores the rest, so
that `a LIKE 'x'` and `amount > 5.` pass and filter by something else than what they say
(docs/understand/compatibility/messages.md).

Short: imported by all processes that may see an expression; the grammar, which loads lark, and the classes of the tree
only with the first one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketpy.errors import FilterInvalid

if TYPE_CHECKING:
    from .expression import Node

LENGTH_MAX = 8192  # characters
NODES_MAX = 1024
DEPTH_MAX = 48
PROPERTIES_MAX = 64  # different names


def parse(text: str) -> Node:
    """The tree of a text.

    Raises: FilterInvalid: it says where, and what was expected there.
    """
    if len(text) > LENGTH_MAX:
        raise FilterInvalid(f"an expression of {len(text)} characters; at most {LENGTH_MAX} are allowed")
    from .grammar import read  # late: most processes never see one; 12 % of a start's CPU (processes/boot/memory.py)

    root = read(text)
    _check_size(root)
    return root


def _check_size(root: Node) -> None:
    """Refuse an expression that is too large or too deep. Raises: FilterInvalid."""
    from . import expression as tree

    level, depth, count, names = [root], 0, 0, set()
    while level:
        depth += 1
        count += sum(1 + (len(node.values) if isinstance(node, tree.In) else 0) for node in level)
        names |= {node.name for node in level if isinstance(node, tree.Property)}
        level = [child for node in level for child in tree.children(node)]
    for what, size, limit in (
        ("values and operators", count, NODES_MAX),
        ("levels", depth, DEPTH_MAX),
        ("different properties", len(names), PROPERTIES_MAX),
    ):
        if size > limit:
            raise FilterInvalid(f"the expression has {size} {what}; at most {limit} are allowed")
