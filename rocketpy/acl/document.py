"""A YAML file, read within bounds: values with their lines, so that an error names the place.

    document = read_document(data, "conf/plain_acl.yml")
    document.plain()        the ordinary value, to be changed and written with `write_document`

The files hold secrets, and a careless one must not stop a server: size, depth and the number of values are bounded,
there are no anchors, a key appears once, and no error repeats a value. Where text is asked for, what YAML takes for a
number in another form (`0x12`, `1_000`, `1e8`) is refused: the reference would read another secret than is written.

PyYAML is imported when the first file is read. Servers and clients without access control do without it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import attrs

from rocketpy.errors import ConfigError

if TYPE_CHECKING:
    import yaml

FILE_BYTES_MAX = 1 << 20
DEPTH_MAX = 8  # dataVersion and accounts need 3
VALUES_MAX = 150_000  # of 8 000 accounts; 60 MiB while they are read
_FLOAT_OF_JAVA = re.compile(r"[-+]?(?:[0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+)")
"""Text for PyYAML, a number for SnakeYAML."""
_TAG = re.compile(r"\b(tag|tag handle) '.*")
"""The end of an error of PyYAML. A value that begins with `!` is a tag, so the error would repeat a secret."""


@attrs.frozen
class Entry:
    """One value and its place: a scalar, or a list or a mapping of entries."""

    value: Any = attrs.field(repr=False)
    file: str
    line: int
    key: str = ""
    raw: str | None = attrs.field(default=None, repr=False)  # a scalar without quotes, as it is written

    def fail(self, reason: str, key: str | None = None) -> NoReturn:
        """Raise ConfigError with the place."""
        raise ConfigError(reason, file=self.file, line=self.line, key=self.key if key is None else key or None)

    def plain(self) -> Any:
        """The value without places."""
        if isinstance(self.value, list):
            return [entry.plain() for entry in self.value]
        if isinstance(self.value, dict):
            return {key: entry.plain() for key, entry in self.value.items()}
        return self.value

    def mapping(self) -> dict[str, Entry]:
        """Return the value as a mapping; nothing is an empty one. Raises: ConfigError, as `fail`: it is none."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.fail("expected `key: value` lines")
        return self.value

    def items(self) -> list[Entry]:
        """As `mapping`, a list."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.fail("expected a list, one `- value` line each")
        return self.value

    def text(self) -> str | None:
        """As `mapping`, a text or a whole number; None for nothing."""
        value = self.value
        if value is None:
            return None
        is_plain_number = type(value) is int and str(value) == self.raw
        if not is_plain_number and (not isinstance(value, str) or _FLOAT_OF_JAVA.fullmatch(self.raw or "")):
            self.fail('expected a text: write it in quotes, "..."')
        return str(value)

    def flag(self) -> bool:
        """As `mapping`, true or false; false for nothing."""
        if self.value is None or isinstance(self.value, bool):
            return bool(self.value)
        if self.value in ("true", "false"):
            return bool(self.value == "true")
        self.fail("expected true or false")


def read_document(data: bytes, file: str) -> Entry:
    """Read a file; `file` is for errors.

    Raises:
        ConfigError: it is too large, too deep, no YAML or not UTF-8, or uses what is refused here.
    """
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"more than {FILE_BYTES_MAX} bytes; share the content among several files", file=file)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8; save the file in this encoding", file=file, line=line) from None
    import yaml

    loader = _loader()
    try:
        _check_events(yaml.parse(text, Loader=loader), file)
        opened = loader(text)
        try:
            node = opened.get_single_node()
            return Entry(None, file, 1) if node is None else _entry(node, opened, file, "")
        finally:
            opened.dispose()
    except yaml.YAMLError as error:  # its text would show lines of the file
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        place = None if mark is None else mark.line + 1
        reason = _TAG.sub(r"\1: write a value with ! in quotes", problem or type(error).__name__)
        raise ConfigError(f"not YAML: {reason}", file=file, line=place) from None


def write_document(document: dict[str, Any]) -> bytes:
    """The text of a file, in the form that the reference writes: blocks, keys in their order."""
    import yaml

    text = yaml.dump(document, Dumper=_dumper(), default_flow_style=False, sort_keys=False, allow_unicode=True)
    return text.encode()


@functools.cache
def _loader() -> Any:
    """The compiled loader where PyYAML has one: 20 times as fast."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _dumper() -> Any:
    import yaml

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "'" if _FLOAT_OF_JAVA.fullmatch(value) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)

    dumper: Any = type("Dumper", (yaml.SafeDumper,), {"ignore_aliases": lambda *_: True})  # none may be read
    dumper.add_representer(str, text)
    return dumper


def _check_events(events: Iterator[yaml.Event], file: str) -> None:
    """Check what must hold before a tree is built: that takes memory, and the depth of the stack."""
    import yaml

    depth = 0
    for count, event in enumerate(events):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        reason = None
        if getattr(event, "anchor", None) is not None:
            reason = "anchors and aliases (&name, *name) are not allowed; write the value again"
        elif depth > DEPTH_MAX:
            reason = f"nested more than {DEPTH_MAX} deep"
        elif count >= VALUES_MAX:
            reason = f"more than {VALUES_MAX} values; share the content among several files"
        if reason:
            assert event.start_mark is not None  # of every event that a parser makes
            raise ConfigError(reason, file=file, line=event.start_mark.line + 1)


def _entry(node: Any, loader: Any, file: str, key: str) -> Entry:
    import yaml

    line, kind = node.start_mark.line + 1, node.tag.removeprefix("tag:yaml.org,2002:")
    if isinstance(node, yaml.ScalarNode):
        try:
            value = loader.construct_object(node)
        except (ValueError, OverflowError, AttributeError, LookupError):  # `2020-13-45`, `!!timestamp x`, `!!bool x`
            value = float("nan")
        return Entry(value, file, line, key, raw=None if node.style else node.value)
    if isinstance(node, yaml.SequenceNode) and kind == "seq":
        return Entry([_entry(item, loader, file, key) for item in node.value], file, line, key)
    place = Entry(None, file, line, key)
    if kind != "map":
        place.fail(f"the tag !!{kind} is not allowed")
    found: dict[str, Entry] = {}
    for name, value in node.value:
        at = Entry(None, file, name.start_mark.line + 1)
        if not (isinstance(name, yaml.ScalarNode) and name.tag.endswith(":str")):
            at.fail("a key that is not a text; write it in quotes", key)
        if name.value in found:
            at.fail("the key is there twice; remove one of them", name.value)
        found[name.value] = _entry(value, loader, file, name.value)
    return Entry(found, file, line, key)
