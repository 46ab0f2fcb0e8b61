"""Java string hashes and index keys."""

from rocketpy.message.tags import expression_tags, index_hash, index_keys, string_hash, tags_code
from tests.support.cases import cases
from tests.support.java_hashes import JAVA_HASHES


@cases("text, value", JAVA_HASHES)
def test_string_hash(text: str, value: int) -> None:
    """Holds: trap, the hash of a tag is Java's."""
    assert string_hash(text) == value
    assert tags_code(text) == value
    assert index_hash(text) == (abs(value) if value != -(1 << 31) else 0)


@cases(
    "expression, tags",
    [
        ("", None),
        ("*", None),
        ("TagA", ["TagA"]),
        ("TagA || TagB", ["TagA", "TagB"]),
        ("\tTagA||\x01TagB \n|| ", ["TagA", "TagB"]),
        ("a|||b", ["a", "|b"]),
        (" * ", ["*"]),  # the reference compares before it trims
        (" || ", []),
        ("Tag\u3000|| \xa0x", ["Tag\u3000", "\xa0x"]),  # spaces to Python, characters to Java
    ],
)
def test_expression_tags(expression: str, tags: list[str] | None) -> None:
    """Fault: A subscription to ` || ` or ` * ` selected other messages in the manager than in the pull worker."""
    assert expression_tags(expression) == tags


def test_no_tag_is_zero() -> None:
    assert tags_code(None) == 0


def test_index_keys() -> None:
    """Holds: store, index keys."""
    assert index_keys("T", {"KEYS": "k1  k2", "UNIQ_KEY": "u"}) == ["T#u", "T#k1", "T#k2"]
    assert index_keys("T", {}) == []
    many = index_keys("T", {"KEYS": " ".join(f"k{i}" for i in range(500)), "UNIQ_KEY": "u"})
    assert (len(many), many[0], many[-1]) == (129, "T#u", "T#k127")
