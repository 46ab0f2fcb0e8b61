"""The messages that sendMessage sends: the same one again and again, or one for each line of its input."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

import attrs
import click

from rocketpy import aio
from rocketpy.client.messages import Message

from .message_lines import Line, parse_line, read_lines


@attrs.frozen
class Given:
    """The options. Files are names, `-` for standard input; `key` and `tags` are for messages that bring none.

    Raises UsageError for a choice that makes no sense.
    """

    topic: str
    body: str | None
    body_file: str | None
    lines_file: str | None
    input_format: str
    key: str | None
    tags: str | None
    count: int | None
    skip: int

    def __attrs_post_init__(self) -> None:
        if sum(given is not None for given in (self.body, self.body_file, self.lines_file)) != 1:
            raise click.UsageError("give one of -p (body), --body-file and --input")
        if self.lines_file is None and self.skip:
            raise click.UsageError("--skip needs --input")

    def completed(self, message: Message) -> Message:
        """The message with the keys and the tag that it lacks."""
        keys = message.keys or tuple((self.key or "").split())
        return attrs.evolve(message, tags=message.tags or self.tags, keys=keys)


@attrs.define
class Source:
    """The messages, and how far their sends are."""

    given: Given
    sent: int = attrs.field(default=0, init=False)
    line_number: int = attrs.field(default=0, init=False)  # of the last message; 0: of no line
    sent_line: int = attrs.field(default=0, init=False)

    @property
    def place(self) -> str:
        """The line of the last message, for errors."""
        return f"line {self.line_number} of {self.given.lines_file}: " if self.line_number else ""

    @property
    def remedy(self) -> str:
        """Sentence that counts the messages sent and names the option that sends the rest."""
        rest = f"--skip {self.sent_line}" if self.given.lines_file else "the rest as --count"
        return f"{self.sent} messages were sent; go on with {rest}"

    def note_sent(self) -> None:
        self.sent += 1
        self.sent_line = self.line_number

    async def lines(self) -> AsyncGenerator[Line, None]:
        """Close it (`aclosing`). Raises MessageInvalid: a line cannot be understood."""
        if self.given.lines_file is None:
            message = self.given.completed(Message(self.given.topic, await self._one_body()))
            for _ in range(self.given.count or 1):
                yield Line(message)
            return
        yielded = 0
        async with aclosing(read_lines(self.given.lines_file)) as texts:
            async for text in texts:
                self.line_number += 1
                if self.line_number <= self.given.skip or not text.strip():
                    continue
                line = self._parsed(text)
                yield attrs.evolve(line, message=self.given.completed(line.message))
                yielded += 1
                if yielded == self.given.count:
                    return

    def _parsed(self, text: bytes) -> Line:
        if self.given.input_format == "json":
            return parse_line(text, self.given.topic)
        return Line(Message(self.given.topic, text))

    async def _one_body(self) -> bytes:
        if self.given.body is not None:
            return self.given.body.encode()
        assert self.given.body_file is not None
        return await aio.in_thread(_read_file, self.given.body_file)


def _read_file(path: str) -> bytes:
    with click.open_file(path, "rb") as file:
        return bytes(file.read())
