"""Pages about brokers, topics and groups: what they show, that names stay text, and what they do without a broker."""

from __future__ import annotations

import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import trio

from rocketpy import aio
from rocketpy.codes import LanguageCode, RequestCode, ResponseCode
from rocketpy.console.alarm_file import AlarmSettings, GroupRule
from rocketpy.console.questions import PAGES_MAX
from rocketpy.console.rendering import STATIC
from rocketpy.console.settings import ConsoleSettings
from rocketpy.console.views import LongLived, local_path
from rocketpy.message.message_queue import MessageQueue
from rocketpy.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    SubscriptionData,
)
from rocketpy.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketpy.remoting.bodies.route import BrokerData, ClusterInfo, KVTable
from rocketpy.remoting.bodies.topic import TopicList, TopicOffset, TopicStatsTable
from tests.support.cases import cases
from tests.support.console import FIGURES, Browser, Reply, Rig, run
from tests.support.scripted_server import no
from tests.unit.console.test_login import ACCOUNTS

MARKUP = "\"><img src=x onerror=alert(1)><script>alert(2)</script>'&{{7*7}}"
PAGES = ("/", "/brokers", "/topics", "/groups", "/messages", "/dead-letters", "/failover", "/alarms")
SCRIPTS = [f"/static/{name}.js" for name in ("vendor/uplot/uPlot.iife.min", "charts", "console")]
VOID = {"meta", "link", "input", "img", "br"}


class Tags(HTMLParser):
    """What a browser would make of a page: elements, and whether each is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.text += data


def well_formed(reply: Reply) -> Tags:
    """Check that nothing of a page runs or loads but our own files."""
    tags = Tags(reply.text)
    assert not tags.open
    assert "img" not in tags.names
    assert not {name for name in tags.attributes if name.startswith("on") or name == "style"}
    scripts = re.findall(r"<script[^>]*>(.)", reply.text)
    assert scripts == ["<"] * len(SCRIPTS), "none has a text"
    assert re.findall(r'<script src="([^"?]*)\?v=\w+" defer>', reply.text) == SCRIPTS
    return tags


def test_a_new_version_of_a_static_file_has_a_new_address() -> None:
    """Fault: For an hour after an upgrade, browsers ran old scripts in new pages, and showed no charts."""

    addresses: list[str] = []

    async def look(rig: Rig) -> None:
        addresses.extend(re.findall(r'(?:src|href)="/static(/[^"]*)"', (await rig.browser.get("/")).text))

    async def load() -> None:
        browser = Browser(LongLived(directory=STATIC))
        for address in addresses:
            path, _, version = address.partition("?v=")
            reply = await browser.get(address)
            assert hashlib.sha256(reply.text.encode()).hexdigest().startswith(version)
            assert reply.headers["cache-control"] == "max-age=31536000, immutable"
            for other in (path, f"{path}?v=0"):
                assert (await browser.get(other)).headers["cache-control"] == "no-cache"

    run(look, T=1)
    assert len(addresses) == len(SCRIPTS) + 3
    trio.run(load)


def test_every_page_is_there_before_anything_is_known() -> None:
    async def test(rig: Rig) -> None:
        for path in PAGES:
            reply = await rig.browser.get(path)
            assert reply.status == 200, path
            well_formed(reply)

    run(test, T=1)


def test_the_overview_has_brokers_and_the_groups_that_are_behind() -> None:
    async def test(rig: Rig) -> None:
        offsets = {MessageQueue("T", "broker-a", 0): OffsetWrapper(broker_offset=12_345, consumer_offset=0)}
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=offsets))
        await rig.look()
        await rig.poller.sample(rig.state.groups["g"])
        text = well_formed(await rig.browser.get("/")).text
        assert "broker-a" in text
        assert "12\u202f345" in text
        assert "1 of 1" in text

    run(test, T=1)


def test_a_broker_that_dies_is_shown_as_such_on_each_page() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        rig.broker.unreachable = True
        rig.broker.mute |= {RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_TOPIC_STATS_INFO}
        await rig.look()
        assert "does not answer" in (await rig.browser.get("/")).text
        assert "no master answers" in (await rig.browser.get("/")).text
        assert "No master answers" in (await rig.browser.get("/failover")).text
        assert "does not answer" in (await rig.browser.get("/broker?name=broker-a")).text
        for path in (*PAGES, "/topic?name=T", "/group?name=g", "/messages?topic=T"):
            reply = await rig.browser.get(path)
            assert (reply.status, "Traceback" in reply.text) == (200, False), path
        rig.cluster.brokers.clear()  # the name server has noticed
        await rig.look()
        assert "gone since" in (await rig.browser.get("/")).text

    run(test, T=1, **{"%RETRY%g": 1})


def test_a_worker_that_was_replaced_is_named_with_its_alarm() -> None:
    async def test(rig: Rig) -> None:
        for text in ("ready, silent 5 ms, restarts 0", "ready, silent 5 ms, restarts 1"):
            rig.broker.answer(RequestCode.GET_BROKER_RUNTIME_INFO, KVTable(table=FIGURES | {"worker_pull": text}))
            await rig.look()
        rig.alarms.look(rig.state, rig.poller._now_ms)
        for path in ("/", "/broker?name=broker-a", "/alarms"):
            assert "worker pull was replaced once within 10 min" in well_formed(await rig.browser.get(path)).text
        assert "<tr><td>pull</td><td>ready</td>" in (await rig.browser.get("/broker?name=broker-a")).text

    run(test, T=1)


def test_charts_tell_when_they_begin_during_their_first_hour() -> None:
    async def test(rig: Rig) -> None:
        assert "when the console started" in (await rig.browser.get("/")).text
        await aio.sleep(3600)
        assert "when the console started" not in (await rig.browser.get("/")).text

    run(test, T=1)


def test_a_broker_that_refuses_the_console_lives() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.refuse(RequestCode.GET_BROKER_RUNTIME_INFO, ResponseCode.NO_PERMISSION)
        await rig.look()
        text = (await rig.browser.get("/")).text
        assert "Broker broker-a refuses the console" in text
        assert "no master answers" not in text
        await rig.look()
        assert "refuses" not in (await rig.browser.get("/")).text

    run(test, T=1)


def test_name_servers_that_do_not_answer_are_told_on_each_page() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        rig.cluster.name_server.unreachable = True
        rig.cluster.name_server.mute.add(RequestCode.GET_BROKER_CLUSTER_INFO)
        await rig.poller._brokers()
        for path in PAGES:
            assert "The name servers do not answer" in (await rig.browser.get(path)).text

    run(test, T=1)


def test_lists_that_are_empty_tell_why() -> None:
    """Fault: Until topics and groups were listed, or when that failed, their pages said that none has such a name."""

    async def test(rig: Rig) -> None:
        lists = {"/topics": "There is no topic.", "/groups": "g", "/dead-letters": "No group has dead letters."}
        assert "Topics- Groups- Groups with dead letters-" in words(await rig.browser.get("/"))
        for path in lists:
            assert "Not listed yet." in words(await rig.browser.get(path))
        rig.cluster.name_server.refuse(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, ResponseCode.SYSTEM_ERROR)
        await rig.look()
        for path in lists:
            assert "Not all topics and groups are listed: CODE: 1" in words(await rig.browser.get(path))
        rig.cluster.name_server.answer(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList())
        await rig.look()
        for path, text in lists.items():
            assert text in words(await rig.browser.get(path))
            assert "has such a name." in words(await rig.browser.get(f"{path}?search=none"))

    run(test)


def words(reply: Reply) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(well_formed(reply).text.split())


def test_names_with_markup_stay_text_on_each_page() -> None:
    async def test(rig: Rig) -> None:
        rig.cluster.name_server.answer(
            RequestCode.GET_BROKER_CLUSTER_INFO,
            ClusterInfo(
                broker_addr_table={MARKUP: BrokerData(broker_addrs={0: rig.broker.address}, broker_name=MARKUP)},
                cluster_addr_table={MARKUP: [MARKUP]},
            ),
        )
        queue = MessageQueue(MARKUP, MARKUP, 0)
        rig.broker.topics[MARKUP] = 1
        rig.broker.topics[f"%RETRY%{MARKUP}"] = 1
        rig.broker.topics[f"%DLQ%{MARKUP}"] = 1
        rig.broker.answer(
            RequestCode.GET_CONSUME_STATS,
            ConsumeStats(offset_table={queue: OffsetWrapper(broker_offset=7, consumer_offset=1)}),
        )
        rig.broker.answer(RequestCode.GET_TOPIC_STATS_INFO, TopicStatsTable(offset_table={queue: TopicOffset()}))
        rig.broker.answer(RequestCode.QUERY_CONSUME_TIME_SPAN, b"{}")
        member = Connection(client_addr=MARKUP, client_id=MARKUP)
        subscriptions = {MARKUP: SubscriptionData(topic=MARKUP, sub_string=MARKUP)}
        connection = ConsumerConnection(connection_set=[member], subscription_table=subscriptions)
        rig.broker.answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, connection)
        rig.broker.answer(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection(connection_set=[member]))
        producer = ProducerInfo(client_id=MARKUP, remote_ip=MARKUP)
        rig.broker.answer(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo(data={MARKUP: [producer]}))
        await rig.look()
        rig.state.look_at(MARKUP, rig.poller._now_ms)
        await rig.poller.sample(rig.state.groups[MARKUP])
        rig.alarms.look(rig.state, rig.poller._now_ms)
        assert rig.alarms.active, rig.state.groups[MARKUP]
        name = quote(MARKUP, safe="")
        named = (
            f"/broker?name={name}",
            f"/producers?broker={name}&search={name}",
            f"/topic?name={name}&producers={name}",
            f"/group?name={name}",
            f"/messages?topic={name}&id={name}",
        )
        more = (f"/dead-letters/group?name={name}", f"/topics?search={name}", f"/group?name={name}x", f"/{name}")
        shown = 0
        for path in (*PAGES, *named, *more):
            reply = await rig.browser.get(path)
            shown += MARKUP in well_formed(reply).text
        assert shown >= 13

    run(test, alarms=AlarmSettings(groups=(GroupRule("*", backlog=1),)))


def test_ten_thousand_topics_are_asked_for_page_by_page() -> None:
    async def test(rig: Rig) -> None:
        for n in range(10_000):
            rig.broker.topics[f"topic-{n:05}"] = 4
        await rig.look()
        reply = await rig.browser.get("/topics?page=3")
        assert "topic-00150" in reply.text
        assert reply.text.count('href="/topic?') == 50
        assert len(rig.cluster.name_server.got(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 50
        assert "topic-09999" in (await rig.browser.get("/topics?search=9999")).text
        assert len(reply.text) < 60_000

    run(test)


def test_a_group_shows_queues_members_and_subscriptions() -> None:
    async def test(rig: Rig) -> None:
        offsets = {MessageQueue("T", "broker-a", 0): OffsetWrapper(broker_offset=70, consumer_offset=11)}
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(consume_tps=2.5, offset_table=offsets))
        rig.broker.answer(RequestCode.QUERY_CONSUME_TIME_SPAN, b'{"consumeTimeSpanSet":[{"delayTime":65000}]}')
        subscriptions = {"T": SubscriptionData(topic="T", sub_string="paid")}
        members = [Connection(client_addr="10.0.0.9:1", client_id="10.0.0.9@7")]
        connection = ConsumerConnection(connection_set=members, subscription_table=subscriptions)
        rig.broker.answer(RequestCode.GET_CONSUMER_CONNECTION_LIST, connection)
        await rig.look()
        await rig.browser.get("/group?name=g")  # from now on it is watched
        await rig.poller.sample(rig.state.groups["g"])
        text = well_formed(await rig.browser.get("/group?name=g")).text
        for part in ("59", "1 min", "2.5", "10.0.0.9@7", "paid"):
            assert part in text

    run(test, T=1, **{"%RETRY%g": 1})


def test_queues_of_a_group_appear_with_the_sample_after_the_first_look() -> None:
    async def test(rig: Rig) -> None:
        offsets = {MessageQueue("T", "broker-a", n): OffsetWrapper(broker_offset=70) for n in range(501)}
        rig.broker.answer(RequestCode.GET_CONSUME_STATS, ConsumeStats(offset_table=offsets))
        rig.broker.answer(RequestCode.QUERY_CONSUME_TIME_SPAN, b"{}")
        await rig.look()
        assert "Not sampled yet" in (await rig.browser.get("/group?name=h")).text
        await rig.poller.sample(rig.state.groups["g"])
        assert "501 queues; they appear with the next sample" in (await rig.browser.get("/group?name=g")).text
        await rig.poller.sample(rig.state.groups["g"])
        text = well_formed(await rig.browser.get("/group?name=g")).text
        assert "500 of 501 queues are shown" in text
        assert "they appear" not in text

    run(test, T=1, **{"%RETRY%g": 1, "%RETRY%h": 1})


def test_the_page_of_a_topic_shows_the_producers_of_a_group() -> None:
    """Fault: No page showed producers."""

    async def test(rig: Rig) -> None:
        member = Connection(client_addr="10.0.0.9:1", client_id="10.0.0.9@7", language=LanguageCode.GO, version=407)
        rig.broker.answer(RequestCode.GET_PRODUCER_CONNECTION_LIST, ProducerConnection(connection_set=[member]))
        assert (await rig.browser.get("/topic?name=T")).status == 200
        assert not rig.broker.got(RequestCode.GET_PRODUCER_CONNECTION_LIST), "nobody has named a group"
        tags = well_formed(await rig.browser.get("/topic?name=T&producers=shop"))
        for part in ("10.0.0.9@7", "10.0.0.9:1", "GO", "407"):
            assert part in tags.text
        (request,) = rig.broker.got(RequestCode.GET_PRODUCER_CONNECTION_LIST)
        assert request.ext_fields["producerGroup"] == "shop"

    run(test, T=1)


@cases(
    "remark, text",
    [("the producer group[shop] not exist", "No producer of group shop"), ("odd", "odd")],
)
def test_a_topic_without_producers_of_a_group(remark: str, text: str) -> None:
    async def test(rig: Rig) -> None:
        refusal = no(ResponseCode.SYSTEM_ERROR, remark)
        rig.broker.refusals[RequestCode.GET_PRODUCER_CONNECTION_LIST].append(refusal)
        assert text in well_formed(await rig.browser.get("/topic?name=T&producers=shop")).text

    run(test, T=1)


def test_the_producers_of_a_broker_are_found_by_group_client_or_address() -> None:
    """Fault: The console showed no producer unless the user knew the name of its group."""

    async def test(rig: Rig) -> None:
        producers = [ProducerInfo(client_id=f"10.0.0.{n}@7", remote_ip=f"/10.0.0.{n}:5") for n in range(60)]
        table = {"shop": producers, "post": [ProducerInfo(client_id="x", language=LanguageCode.GO)]}
        rig.broker.answer(RequestCode.GET_ALL_PRODUCER_INFO, ProducerTableInfo(data=table))
        await rig.look()
        assert "/producers?broker=broker-a" in (await rig.browser.get("/broker?name=broker-a")).text
        first = well_formed(await rig.browser.get("/producers?broker=broker-a")).text
        assert "61 found, page 1 of 2" in first and "GO" in first and "10.0.0.59" not in first
        following = await rig.browser.get("/producers?broker=broker-a&page=1")
        assert "/producers?page=0&amp;broker=broker-a" in following.text
        for wanted, count in (("shop", 60), ("10.0.0.59@", 1), ("10.0.0.59:5", 1), ("POST", 1), ("none", 0)):
            text = well_formed(await rig.browser.get(f"/producers?broker=broker-a&search={wanted}")).text
            assert f"{count} found" in text, wanted
        assert "No such producer" in text

    run(test, T=1)


def test_a_broker_that_does_not_tell_its_producers() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.refuse(RequestCode.GET_ALL_PRODUCER_INFO, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        await rig.look()
        reply = await rig.browser.get("/producers?broker=broker-a")
        assert (reply.status, 'class="fault"' in reply.text) == (200, True)
        assert (await rig.browser.get("/producers?broker=other")).status == 404

    run(test, T=1)


def test_a_group_without_members_is_no_error() -> None:
    async def test(rig: Rig) -> None:
        rig.broker.refuse(RequestCode.GET_CONSUMER_CONNECTION_LIST, ResponseCode.CONSUMER_NOT_ONLINE)
        await rig.look()
        assert "No member is online" in (await rig.browser.get("/group?name=g")).text

    run(test, T=1, **{"%RETRY%g": 1})


@cases("path, status", [("/group?name=none", 404), ("/broker?name=x", 404), ("/none", 404), ("/topics?page=-1", 400)])
def test_what_is_not_there_is_a_page_too(path: str, status: int) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.browser.get(path)
        assert reply.status == status
        well_formed(reply)

    run(test, T=1)


def test_pages_that_wait_for_brokers_are_bounded() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        rig.broker.mute.add(RequestCode.GET_TOPIC_STATS_INFO)
        statuses = []

        async def get() -> None:
            statuses.append((await rig.browser.get("/topic?name=T")).status)

        async with aio.open_nursery() as nursery:
            for _ in range(3 * PAGES_MAX):
                nursery.start_soon(get)
        assert set(statuses) == {200, 503}
        assert statuses.count(503) >= PAGES_MAX

    run(test, T=1)


# --- login ------------------------------------------------------------------------------------------------------------


def with_login(tmp_path: Path, **more: Any) -> ConsoleSettings:
    path = tmp_path / "plain_acl.yml"
    path.write_text(ACCOUNTS)
    return ConsoleSettings(accounts=path, **more)


RIGHT = {"user": "operator", "secret": "operator-secret", "next": "/topics"}


def test_nothing_is_shown_without_a_login(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        for path in (*PAGES, "/topic?name=T", "/none"):
            reply = await rig.browser.get(path)
            assert reply.status == 303
            assert reply.headers["location"].startswith("/login?next=%2F")
        assert "broker-a" not in (await rig.browser.get("/login")).text

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)


def test_a_login_leads_where_one_wanted_to_go(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        for user, secret in (("operator", "x"), ("shop-orders", "shop-orders-secret"), ("", "")):
            assert (await rig.browser.post("/login", {"user": user, "secret": secret})).status == 403
        reply = await rig.browser.post("/login", RIGHT)
        assert (reply.status, reply.headers["location"]) == (303, "/topics")
        cookie = reply.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert (await rig.browser.get("/topics")).status == 200
        token = (await rig.browser.get("/")).text.partition('name="token" value="')[2].partition('"')[0]
        await rig.browser.post("/logout", {"token": "wrong"})
        assert (await rig.browser.get("/")).status == 200
        kept = rig.browser.cookie
        await rig.browser.post("/logout", {"token": token})
        rig.browser.cookie = kept
        assert (await rig.browser.get("/")).status == 303

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)


def test_a_login_form_of_another_site_is_refused(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        origins = [{"origin": one} for one in ("https://evil.example.com", "null", "http://[")]
        for headers in (*origins, {"sec_fetch_site": "cross-site"}):
            assert (await rig.browser.post("/login", RIGHT, **headers)).status == 403
        assert (await rig.browser.post("/login", RIGHT, origin="http://localhost:8180")).status == 303

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)


def test_guesses_are_slowed_down(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for _ in range(10):
            assert (await rig.browser.post("/login", {"user": "operator", "secret": "guess"})).status == 403
        assert (await rig.browser.post("/login", RIGHT)).status == 429

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)


def test_one_client_of_a_proxy_does_not_lock_out_the_others(tmp_path: Path) -> None:
    """Fault: Behind a proxy with TLS, ten failed logins of one stranger kept all administrators from logging in."""

    async def test(rig: Rig) -> None:
        for n in range(12):
            guess = {"user": "operator", "secret": "guess"}
            reply = await rig.browser.post("/login", guess, x_forwarded_for=f"203.0.113.{n}, 198.51.100.1")
            assert reply.status == (403 if n < 10 else 429), "the last address counts, not those that the client claims"
        assert (await rig.browser.post("/login", RIGHT, x_forwarded_for="198.51.100.1")).status == 429
        assert (await rig.browser.post("/login", RIGHT, x_forwarded_for="198.51.100.2")).status == 303

    run(test, settings=with_login(tmp_path, proxies=("192.0.2.1",)), with_threads=True, T=1)


def test_an_address_that_no_proxy_told_does_not_count(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        for n in range(12):
            guess = {"user": "operator", "secret": "guess"}
            reply = await rig.browser.post("/login", guess, x_forwarded_for=f"203.0.113.{n}")
            assert reply.status == (403 if n < 10 else 429)

    run(test, settings=with_login(tmp_path, proxies=("192.0.2.2",)), with_threads=True, T=1)


def test_guesses_at_the_same_time_count_like_those_one_after_the_other(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        statuses = []

        async def guess() -> None:
            statuses.append((await rig.browser.post("/login", {"user": "operator", "secret": "guess"})).status)

        async with aio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(guess)
        assert sorted(statuses) == [403] * 10 + [429] * 20

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)


@cases(
    "text, path",
    [("/a?b=c", "/a?b=c"), ("//evil", "/"), ("https://evil", "/"), ("/\\evil", "/"), ("", "/"), ("/\n", "/")],
)
def test_a_login_leads_nowhere_else(text: str, path: str) -> None:
    assert local_path(text) == path


def test_an_odd_form_is_a_page(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        assert (await rig.browser.ask("POST", "/login", b"user=%ff\xff&" * 3, {})).status == 400
        assert (await rig.browser.ask("POST", "/login", b"a=b&" * 100, {})).status == 400

    run(test, settings=with_login(tmp_path), with_threads=True, T=1)
