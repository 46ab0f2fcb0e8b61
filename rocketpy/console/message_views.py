"""Views of messages: search, one message with its trace, dead letters."""

from __future__ import annotations

import hmac
from datetime import datetime
from typing import Any

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from rocketpy.admin.messages import message_tracks
from rocketpy.errors import ConfigError
from rocketpy.message.message_queue import MessageQueue
from rocketpy.message.names import DLQ_PREFIX, dlq_topic
from rocketpy.message.numbers import INT_MAX

from .dead_letters import origin_of, send_again
from .login import RESENT_MAX
from .message_search import SEARCH_S, Found, Search, at_place, parse_number, search, trace
from .questions import Answer
from .rendering import address, body_text
from .views import Console, Page, form_of, is_own_form

TEXT_MAX = 1024  # of a field of a search


class MessagePages:
    """Messages and dead letters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._questions = console.questions

    def routes(self) -> list[Route]:
        pages = {
            "/messages": self.messages,
            "/message": self.message,
            "/dead-letters": self.dead_letter_topics,
            "/dead-letters/group": self.dead_letters,
        }
        changes = {"/dead-letters/send-again": self.send_again}
        return self._console.routes(pages) + self._console.routes(changes, "POST")

    async def messages(self, page: Page) -> Response:
        given = {name: page.query(name).strip()[:TEXT_MAX] for name in ("topic", "id", "key", "since")}
        if given["key"] and not given["topic"]:
            raise ConfigError("a search by key needs a topic")
        wanted = Search(given["topic"], given["id"], given["key"], _time_ms(given["since"]))
        answer: Answer[Found] | None = None
        if not wanted.is_empty:
            async with self._questions.place():
                answer = await search(self._questions, wanted)
        return self._console.show(page, "messages.html", title="Messages", given=given, answer=answer)

    async def message(self, page: Page) -> Response:
        queue, offset = _place(page)
        with_groups = page.query("groups") == "1"
        async with self._questions.place():
            found = await self._questions.one(lambda: at_place(self._questions, queue, offset))
            message = found.value
            traced = await trace(self._questions, message.msg_id) if message is not None else Answer()
            tracks: Answer[Any] = Answer()
            if message is not None and with_groups:
                tracks = await self._questions.one(lambda: message_tracks(self._questions.admin, message), SEARCH_S)
        text, note = body_text(message.body) if message is not None else ("", "")
        return self._console.show(
            page,
            "message.html",
            title="Message",
            found=found,
            traced=traced,
            tracks=tracks,
            with_groups=with_groups,
            here=address("/message", **_query(queue, offset)),
            body=text,
            body_note=note,
        )

    async def dead_letter_topics(self, page: Page) -> Response:
        groups = [topic.removeprefix(DLQ_PREFIX) for topic in self._questions.state.dead_letter_topics]
        return self._console.show(page, "dead_letters.html", title="Dead letters", paging=page.paging(groups))

    async def dead_letters(self, page: Page) -> Response:
        group = page.query("name")
        async with self._questions.place():
            answer = await search(self._questions, Search(dlq_topic(group)))
        resent = page.session.resent if page.session is not None else {}
        return self._console.show(
            page,
            "dead_letter_group.html",
            title=f"Dead letters of {group}",
            group=group,
            answer=answer,
            origin_of=origin_of,
            resent=resent,
            key_of=lambda message: _key(message.queue, message.queue_offset),
        )

    async def send_again(self, page: Page) -> Response:
        """Change: the only one that the console makes."""
        form = await form_of(page.request)
        session, settings = page.session, self._console.access.settings
        if session is None or not settings.allow_changes:
            return self._refused(page, "this console only reads; start it with --allow-changes and --accounts")
        if not is_own_form(page.request) or not hmac.compare_digest(
            form.get("token", "").encode(), session.form_token.encode()
        ):
            return self._refused(page, "the form is not one of this session; go back and load the page again")
        group = form.get("group", "")[:TEXT_MAX]
        broker, queue_id = form.get("broker", "")[:TEXT_MAX], parse_number(form.get("queue", ""), "queue", INT_MAX)
        offset = parse_number(form.get("offset", ""), "offset")
        async with self._questions.place():
            answer = await send_again(self._questions, group, broker, queue_id, offset)
        if answer.value is None:
            session.message = f"Not sent: {answer.error}"
        else:
            session.message = f"Sent again to group {group}: {answer.value.msg_id}"
            session.resent[_key(MessageQueue(dlq_topic(group), broker, queue_id), offset)] = self._questions.now_ms
            while len(session.resent) > RESENT_MAX:
                del session.resent[next(iter(session.resent))]
        return RedirectResponse(address("/dead-letters/group", name=group), 303)

    def _refused(self, page: Page, text: str) -> Response:
        return self._console.show(page, "error.html", title="Refused", status=403, text=text)


def _key(queue: MessageQueue, offset: int) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}/{offset}"


def _query(queue: MessageQueue, offset: int) -> dict[str, object]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id, "offset": offset}


def _place(page: Page) -> tuple[MessageQueue, int]:
    queue_id = parse_number(page.query("queue"), "queue", INT_MAX)
    queue = MessageQueue(page.query("topic")[:TEXT_MAX], page.query("broker")[:TEXT_MAX], queue_id)
    return queue, parse_number(page.query("offset"), "offset")


def _time_ms(text: str) -> int | None:
    """Read the value of a field of the kind datetime-local, in the console's time zone. Raises ConfigError."""
    if not text:
        return None
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as error:
        raise ConfigError(f"no time: {text[:40]!r}; write 2024-02-29T12:00") from error
