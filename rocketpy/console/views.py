"""Views: one function per page about brokers, topics and groups. Pages about messages are in message_views.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rocketpy import aio
from rocketpy.admin.core import NotFound
from rocketpy.errors import ConfigError, RocketError
from rocketpy.faults import printable
from rocketpy.message.names import DLQ_PREFIX

from .alarms import Alarms
from .charts import Line, chart, sparkline
from .cluster import ClusterState
from .conditions import broker_page
from .history import HOUR_MS
from .login import AccountFile, Session, Sessions, client_address
from .message_search import parse_number
from .questions import Questions, TooBusy
from .rendering import STATIC, Paging, Renderer, address, duration, number, rate, static
from .settings import ConsoleSettings

COOKIE = "rocketpy_console"
REFRESH_S = 5
SLOW_REFRESH_S = 15  # of pages that ask brokers
BROKERS_SHOWN_IN_CHART = 6
GROUPS_IN_OVERVIEW = 10
FORM_FIELDS_MAX = 20


@attrs.define(eq=False)
class Access:
    """Sessions, and the file of accounts; None: nobody logs in, and everybody reads."""

    sessions: Sessions
    accounts: AccountFile | None
    settings: ConsoleSettings

    def session_of(self, request: Request) -> Session | None:
        token = request.cookies.get(COOKIE)
        return self.sessions.find(token, is_use="x-refresh" not in request.headers)


@attrs.frozen
class Page:
    """A request that may see the page, and what all pages show."""

    request: Request
    session: Session | None

    def query(self, name: str) -> str:
        return self.request.query_params.get(name, "")

    def paging(self, names: Sequence[str]) -> Paging:
        """Return the part of a list that the query asks for: its search, and the number of the part."""
        return Paging.of(names, self.query("search"), parse_number(self.query("page") or "0", "page", 1_000_000))


Handler = Callable[["Page"], Awaitable[Response]]


class Console:
    """State, questions, alarms and templates that all pages share."""

    def __init__(self, questions: Questions, alarms: Alarms, access: Access) -> None:
        self.questions = questions
        self.alarms = alarms
        self.access = access
        self._renderer = Renderer()
        self._started_ms = questions.now_ms

    @property
    def state(self) -> ClusterState:
        return self.questions.state

    def show(
        self, page: Page | None, template: str, *, title: str, status: int = 200, refresh_s: int = 0, **values: Any
    ) -> Response:
        """Render a page."""
        session, now_ms = page.session if page is not None else None, self.questions.now_ms
        common = {
            "title": title,
            "now_ms": now_ms,
            "charts_from_ms": self._started_ms if now_ms - self._started_ms < HOUR_MS else None,
            "sparkline": lambda label, history, text: sparkline(label, history, now_ms, text),
            "state": self.state,
            "alarm_count": len(self.alarms.active),
            "user": session.user if session is not None else "",
            "form_token": session.form_token if session is not None else "",
            "may_change": self.access.settings.allow_changes and session is not None,
            "has_login": self.access.accounts is not None,
            "refresh_s": refresh_s,
            "path": page.request.url.path if page is not None else "",
            "message": _take_message(session),
        }
        return HTMLResponse(self._renderer.page(template, common | values), status)

    def routes(self, pages: Mapping[str, Handler], method: str = "GET") -> list[Route]:
        """Return the routes of pages by path; each asks for a login."""
        return [Route(path, self.guarded(handler), methods=[method]) for path, handler in pages.items()]

    def guarded(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint: it asks for a login, and makes errors pages."""

        async def endpoint(request: Request) -> Response:
            session = self.access.session_of(request)
            if self.access.accounts is not None and session is None:
                here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(address("/login", next=here if request.method != "POST" else "/"), 303)
            page = Page(request, session)
            try:
                return await handler(page)
            except NotFound as error:
                return self._failed(page, 404, error)
            except ConfigError as error:  # of the query
                return self._failed(page, 400, error)
            except TooBusy as error:
                return self._failed(page, 503, error)
            except RocketError as error:
                return self._failed(page, 502, error)

        return endpoint

    def _failed(self, page: Page, status: int, error: RocketError) -> Response:
        text = printable(str(error))
        return self.show(page, "error.html", title="Error", status=status, text=text, refresh_s=SLOW_REFRESH_S)


def _take_message(session: Session | None) -> str:
    if session is None:
        return ""
    message, session.message = session.message, ""
    return message


async def form_of(request: Request) -> Mapping[str, str]:
    """Read a form. Raises ConfigError: it has too many fields or is no UTF-8."""
    try:
        return dict(parse_qsl((await request.body()).decode(), True, max_num_fields=FORM_FIELDS_MAX))
    except ValueError as error:
        raise ConfigError(f"the form cannot be read: {error}") from error


def is_own_form(request: Request) -> bool:
    """Return True unless the browser says that the form is one of another site."""
    origin, host = request.headers.get("origin"), request.headers.get("host")
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    try:
        return origin is None or urlsplit(origin).netloc == host
    except ValueError:  # `http://[`
        return False


class ClusterPages:
    """Overview, brokers, failover, topics, groups."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = console.state
        self._questions = console.questions

    def routes(self) -> list[Route]:
        pages = {
            "/": self.overview,
            "/brokers": self.brokers,
            "/broker": self.broker,
            "/producers": self.producers,
            "/failover": self.failover,
            "/topics": self.topics,
            "/topic": self.topic,
            "/groups": self.groups,
            "/group": self.group,
            "/member": self.member,
            "/alarms": self.alarm_list,
        }
        return self._console.routes(pages)

    async def overview(self, page: Page) -> Response:
        state, now_ms = self._state, self._questions.now_ms
        masters = [broker for broker in state.sorted_brokers() if broker.is_master][:BROKERS_SHOWN_IN_CHART]
        lines = [Line(f"{broker.name} in", broker.rates_in) for broker in masters]
        behind = sorted((group for group in state.groups.values() if group.lag), key=lambda group: -group.lag)
        return self._console.show(
            page,
            "overview.html",
            title="Overview",
            refresh_s=REFRESH_S,
            brokers=state.sorted_brokers(),
            without_master=state.without_master(),
            alarms=list(self._console.alarms.active.values()),
            behind=behind[:GROUPS_IN_OVERVIEW],
            sampled=sum(1 for group in state.groups.values() if group.sampled_ms),
            chart=chart("Messages in per second", lines, now_ms, rate),
        )

    async def brokers(self, page: Page) -> Response:
        return self._console.show(
            page,
            "brokers.html",
            title="Brokers",
            refresh_s=REFRESH_S,
            brokers=self._state.sorted_brokers(),
        )

    async def broker(self, page: Page) -> Response:
        name, now_ms = page.query("name"), self._questions.now_ms
        brokers = [broker for broker in self._state.sorted_brokers() if broker.name == name]
        if not brokers:
            raise NotFound(f"no broker has the name {name}")
        charts = []
        for broker in brokers:
            rates = [Line("in", broker.rates_in), Line("out", broker.rates_out)]
            charts.append(
                (
                    broker,
                    chart("Messages per second", rates, now_ms, rate),
                    chart("Time in which 99 % of puts ended", [Line("p99", broker.latencies)], now_ms, duration, "ms"),
                )
            )
        alarms = [alarm for alarm in self._console.alarms.active.values() if alarm.condition.page == broker_page(name)]
        return self._console.show(
            page, "broker.html", title=f"Broker {name}", refresh_s=REFRESH_S, charts=charts, alarms=alarms
        )

    async def producers(self, page: Page) -> Response:
        """Show the producers of the masters of a name. The page is not refreshed: the list may be long."""
        name = page.query("broker")
        addresses = [each.address for each in self._state.sorted_brokers() if each.name == name and each.is_master]
        if not addresses:
            raise NotFound(f"no broker of the name {name} is a master")
        async with self._questions.place():
            answers = await self._questions.producers(addresses)
        found = {text: each for answer in answers.values() for text, each in (answer.value or {}).items()}
        return self._console.show(
            page,
            "producers.html",
            title=f"Producers of {name}",
            name=name,
            answers=answers,
            paging=page.paging(list(found)),
            found=found,
        )

    async def failover(self, page: Page) -> Response:
        names: dict[tuple[str, str], list[Any]] = {}
        for broker in self._state.sorted_brokers():
            names.setdefault((broker.cluster, broker.name), []).append(broker)
        return self._console.show(
            page,
            "failover.html",
            title="Failover",
            refresh_s=REFRESH_S,
            names=names,
            without_master=set(self._state.without_master()),
        )

    async def topics(self, page: Page) -> Response:
        paging = page.paging(self._state.topics)
        async with self._questions.place():
            rows = await self._questions.topic_rows(paging.rows)
        return self._console.show(
            page, "topics.html", title="Topics", refresh_s=SLOW_REFRESH_S, paging=paging, rows=rows
        )

    async def topic(self, page: Page) -> Response:
        name = page.query("name")
        if not name:
            raise NotFound("the address names no topic")
        producer_group = page.query("producers").strip()
        async with self._questions.place():
            answers = await self._questions.topic_page(name, producer_group)
        return self._console.show(
            page,
            "topic.html",
            title=f"Topic {name}",
            refresh_s=SLOW_REFRESH_S,
            name=name,
            producer_group=producer_group,
            answers=answers,
        )

    async def groups(self, page: Page) -> Response:
        names = sorted(self._state.groups, key=lambda name: (-self._state.groups[name].lag, name))
        paging = page.paging(names)
        return self._console.show(
            page,
            "groups.html",
            title="Groups",
            refresh_s=REFRESH_S,
            paging=paging,
            groups=[self._state.groups[name] for name in paging.rows],
        )

    async def group(self, page: Page) -> Response:
        name, now_ms = page.query("name"), self._questions.now_ms
        group = self._state.look_at(name, now_ms)
        if group is None:
            raise NotFound(f"no group {name}; names of new groups appear within a minute")
        async with self._questions.place():
            members = await self._questions.members(name)
        lags, ages = [Line("messages", group.lags)], [Line("age", group.ages)]
        return self._console.show(
            page,
            "group.html",
            title=f"Group {name}",
            refresh_s=REFRESH_S,
            group=group,
            members=members,
            lag_chart=chart("Messages not consumed", lags, now_ms, number),
            age_chart=chart("Age of the oldest of them", ages, now_ms, duration, "ms"),
            has_dead_letters=DLQ_PREFIX + name in self._state.dead_letter_topics,
        )

    async def member(self, page: Page) -> Response:
        group, client_id = page.query("group"), page.query("id")
        async with self._questions.place():
            answer = await self._questions.member(group, client_id)
        return self._console.show(
            page, "member.html", title=f"Member of {group}", group=group, client_id=client_id, answer=answer
        )

    async def alarm_list(self, page: Page) -> Response:
        alarms = self._console.alarms
        return self._console.show(
            page,
            "alarms.html",
            title="Alarms",
            refresh_s=REFRESH_S,
            active=sorted(alarms.active.values(), key=lambda alarm: -alarm.raised_ms),
            cleared=alarms.cleared,
            settings=alarms.settings,
            left_out=alarms.left_out,
        )


class LoginPages:
    """Log in and out."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._access = console.access

    def routes(self) -> list[Route]:
        return [
            Route("/login", self.form, methods=["GET"]),
            Route("/login", self.log_in, methods=["POST"]),
            *self._console.routes({"/logout": self.log_out}, "POST"),
        ]

    def _show(self, target: str, fault: str = "", status: int = 200) -> Response:
        return self._console.show(None, "login.html", title="Log in", status=status, target=target, fault=fault)

    def _too_many(self, target: str) -> Response:
        return self._show(target, "Too many failures; try again in a minute.", 429)

    def _client(self, request: Request) -> str:
        """Return the address that failures count for."""
        peer = request.client.host if request.client is not None else ""
        forwarded = ",".join(request.headers.getlist("x-forwarded-for"))
        return client_address(peer, forwarded, self._access.settings.proxy_networks)

    async def form(self, request: Request) -> Response:
        if self._access.accounts is None or self._access.session_of(request) is not None:
            return RedirectResponse("/", 303)
        return self._show(local_path(request.query_params.get("next", "/")))

    async def log_in(self, request: Request) -> Response:
        if self._access.accounts is None:
            return RedirectResponse("/", 303)
        client = self._client(request)
        try:
            form = await form_of(request)
        except ConfigError as error:
            return self._show("/", printable(str(error)), 400)
        target = local_path(form.get("next", "/"))
        if not is_own_form(request):
            return self._show(target, "The form is not one of this console.", 403)
        sessions = self._access.sessions
        if not sessions.may_try(client):
            return self._too_many(target)
        try:
            digests = await aio.in_thread(self._access.accounts.digests)
        except ConfigError as error:
            return self._show(target, printable(str(error)), 503)
        if not sessions.may_try(client):  # those that came at the same time have failed meanwhile
            return self._too_many(target)
        token = sessions.log_in(client, form.get("user", ""), form.get("secret", ""), digests)
        if token is None:
            return self._show(target, "No administrator has this access key and secret key.", 403)
        answer = RedirectResponse(target, 303)
        secure = self._access.settings.certificate is not None
        answer.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict", secure=secure)
        return answer

    async def log_out(self, page: Page) -> Response:
        form = await form_of(page.request)
        answer = RedirectResponse("/", 303)
        if page.session is not None and form.get("token") == page.session.form_token:
            self._access.sessions.end(page.request.cookies.get(COOKIE))
            answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer


def local_path(text: str) -> str:
    """Return a path of the console that a login leads to; `/` for anything else: a link must not lead elsewhere."""
    is_local = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if is_local else "/"


class LongLived(StaticFiles):
    """Files of the package. Browsers keep them for a year by the addresses that pages have now; by others, which are of
    pages of another version, they ask each time."""

    def file_response(self, full_path: Any, stat_result: Any, scope: Any, status_code: int = 200) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        _, _, version = static(str(Path(full_path).relative_to(STATIC))).partition("?")
        is_current = scope["query_string"] == version.encode()
        response.headers["cache-control"] = "max-age=31536000, immutable" if is_current else "no-cache"
        return response


def application(console: Console, more: list[Route]) -> Starlette:
    """Return the pages as an ASGI application."""

    async def nothing(page: Page) -> Response:
        raise NotFound(f"there is no page {page.request.url.path[:200]}")

    files = Mount("/static", LongLived(directory=STATIC))
    routes = [*ClusterPages(console).routes(), *LoginPages(console).routes(), *more, files]
    return Starlette(routes=[*routes, Route("/{path:path}", console.guarded(nothing), methods=["GET", "POST"])])
