"""Pages about messages: searches, one message with its trace, dead letters and the way back to their group."""

from __future__ import annotations

import re
import time
import tracemalloc
import zlib
from pathlib import Path

from rocketpy.codes import RequestCode
from rocketpy.console.message_search import FOUND_MAX
from rocketpy.console.settings import ConsoleSettings
from rocketpy.message.host import parse_host
from rocketpy.message.message_id import encode_offset_message_id
from rocketpy.message.names import TRACE_TOPIC
from rocketpy.message.properties import decode_properties
from rocketpy.message.sys_flag import COMPRESSED
from rocketpy.message.trace import Pub
from tests.support.cases import cases
from tests.support.console import Rig, run
from tests.unit.console.test_views import MARKUP, RIGHT, well_formed, with_login

ID = "C0A8010A12670BADCAFE16D1862B002A"
BOMBS, BOMB_SIZE = 32, 8 << 20


def store(rig: Rig, topic: str, body: bytes, **properties: str) -> None:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    rig.broker.store(topic, 0, body, text.encode())


def test_the_newest_messages_of_a_topic() -> None:
    async def test(rig: Rig) -> None:
        for n in range(2 * FOUND_MAX):
            store(rig, "T", b"body", UNIQ_KEY=f"ID{n:03}", KEYS=f"k{n}")
        reply = await rig.browser.get("/messages?topic=T")
        assert "ID127" in reply.text
        assert "ID000" not in reply.text
        assert reply.text.count('href="/message?') == FOUND_MAX
        well_formed(reply)

    run(test, T=1)


def store_bombs(rig: Rig, topic: str, **properties: str) -> None:
    """Store BOMBS messages of BOMB_SIZE bytes, compressed to a thousandth."""
    bomb = zlib.compress(bytes(BOMB_SIZE))
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
    for _ in range(BOMBS):
        rig.broker.store(topic, 0, bomb, text.encode(), sys_flag=COMPRESSED)


async def page_and_peak(rig: Rig, path: str) -> tuple[str, int]:
    """Return a page, and the most memory that it took."""
    tracemalloc.start()
    try:
        reply = await rig.browser.get(path)
        return reply.text, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@cases("query", ["", "&key=k", f"&id={ID}"])
def test_a_list_inflates_no_message(query: str) -> None:
    """Fault: A list inflated all messages of an answer at once: 32 of a few KiB could take 2 GiB."""

    async def test(rig: Rig) -> None:
        store_bombs(rig, "T", UNIQ_KEY=ID, KEYS="k")
        text, peak = await page_and_peak(rig, f"/messages?topic=T{query}")
        assert text.count('href="/message?') == BOMBS
        assert "8.0 KiB" in text
        assert peak < BOMB_SIZE

    run(test, T=1)


def test_the_page_of_a_message_reads_and_inflates_it_alone() -> None:
    """Fault: The page of one message pulled and inflated the 31 messages after it, too."""

    async def test(rig: Rig) -> None:
        store_bombs(rig, "T", UNIQ_KEY=ID)
        text, peak = await page_and_peak(rig, "/message?topic=T&broker=broker-a&queue=0&offset=3")
        assert ID in text
        assert rig.broker.got(RequestCode.PULL_MESSAGE)[0].ext_fields["maxMsgNums"] == "1"
        assert peak < 5 * BOMB_SIZE

    run(test, T=1)


def test_traces_are_inflated_one_by_one_within_a_limit() -> None:
    """Fault: The page of a message inflated all that anybody had stored in the trace topic under its id."""

    async def test(rig: Rig) -> None:
        store(rig, "T", b"body", UNIQ_KEY=ID)
        pub = Pub(1709288551127, "r", "shop", "T", ID, "", "k", "10.0.0.1:10911", 3, 12, 0, "X", True)
        body = zlib.compress(pub.encode().encode())
        rig.broker.store(TRACE_TOPIC, 0, body, f"KEYS\x01{ID}\x02".encode(), sys_flag=COMPRESSED)
        store_bombs(rig, TRACE_TOPIC, KEYS=ID)
        text, peak = await page_and_peak(rig, "/message?topic=T&broker=broker-a&queue=0&offset=0")
        assert "shop" in text
        assert peak < BOMB_SIZE

    run(test, with_threads=True, T=1, **{TRACE_TOPIC: 1})


def test_messages_by_key_and_by_id_of_the_producer() -> None:
    async def test(rig: Rig) -> None:
        store(rig, "T", b"one", UNIQ_KEY=ID, KEYS="order-1")
        store(rig, "T", b"two", UNIQ_KEY="ID2", KEYS="order-2")
        for path in ("/messages?topic=T&key=order-1", f"/messages?topic=T&id={ID}"):
            reply = await rig.browser.get(path)
            assert (ID in reply.text, "ID2" in reply.text.partition('id="live"')[2]) == (True, False), path
        assert "No message was found" in (await rig.browser.get("/messages?topic=T&key=none")).text
        assert (await rig.browser.get("/messages?key=k")).status == 400

    run(test, T=1)


def test_a_brokers_id_leads_to_known_brokers_only() -> None:
    """An id holds an address: one of a stranger must not make the console connect to any machine."""

    async def test(rig: Rig) -> None:
        await rig.look()
        store(rig, "T", b"one", UNIQ_KEY="ID1")
        asked = len(rig.broker.requests)
        stranger = rig.cluster.add_broker("stranger")
        for address, found in ((rig.broker.address, True), (stranger.address, False), ("169.254.169.254:80", False)):
            message_id = encode_offset_message_id(parse_host(address), 0)
            reply = await rig.browser.get(f"/messages?id={message_id}")
            assert ("ID1" in reply.text) is found, address
        assert len(rig.broker.requests) > asked
        assert not stranger.requests

    run(test, T=1)


def test_a_message_and_its_trace() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        store(rig, "T", f"<b>{MARKUP}".encode(), UNIQ_KEY=ID, KEYS="k", colour=MARKUP)
        pub = Pub(1709288551127, "r", "shop", "T", ID, "", "k", "10.0.0.1:10911", 3, 12, 0, "X", True)
        store(rig, TRACE_TOPIC, pub.encode().encode(), KEYS=ID)
        reply = await rig.browser.get("/message?topic=T&broker=broker-a&queue=0&offset=0")
        tags = well_formed(reply)
        assert tags.text.count(MARKUP) == 2
        for part in (ID, "shop", "12 ms", "success"):
            assert part in tags.text
        reply = await rig.browser.get("/message?topic=T&broker=broker-a&queue=0&offset=0&groups=1")
        assert "No group consumes the topic" in reply.text

    run(test, with_threads=True, T=1, **{TRACE_TOPIC: 1})


@cases(
    "query, status, text",
    [
        ("topic=T&broker=broker-a&queue=0&offset=7", 200, "no message at offset 7"),
        ("topic=T&broker=none&queue=0&offset=0", 200, "The broker[none] not exist"),
        ("topic=none&broker=broker-a&queue=0&offset=0", 200, "No topic route info"),
        ("topic=T&broker=broker-a&queue=x&offset=0", 400, "queue is no number"),
        ("topic=T&broker=broker-a&queue=0&offset=99999999999999999999", 400, "offset is no number"),
        ("", 400, "queue is no number"),
    ],
)
def test_a_message_that_is_not_there(query: str, status: int, text: str) -> None:
    async def test(rig: Rig) -> None:
        reply = await rig.browser.get(f"/message?{query}")
        assert (reply.status, text in reply.text) == (status, True), reply.text

    run(test, T=1)


def test_a_time_that_is_none() -> None:
    async def test(rig: Rig) -> None:
        assert (await rig.browser.get("/messages?topic=T&since=yesterday")).status == 400
        assert (await rig.browser.get("/messages?topic=T&since=2024-02-29T12:00")).status == 200

    run(test, T=1)


def test_messages_since_a_time_are_those_next_to_it() -> None:
    """A search by time begins with the first message of that time, whatever came later."""

    async def test(rig: Rig) -> None:
        begin_ms = 1_700_000_000_000  # of the first message; then one each second
        for n in range(3 * FOUND_MAX):
            rig.broker.now_ms = lambda n=n: begin_ms + 1000 * n
            store(rig, "T", b"body", UNIQ_KEY=f"ID{n:03}")
        since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin_ms / 1000 + 50))
        shown = re.findall(r">(ID\d+)<", (await rig.browser.get(f"/messages?topic=T&since={since}")).text)
        assert shown == [f"ID{n:03}" for n in reversed(range(50, 50 + FOUND_MAX))]
        later = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin_ms / 1000 + 1000))
        assert "No message was found" in (await rig.browser.get(f"/messages?topic=T&since={later}")).text

    run(test, T=1)


# --- dead letters -----------------------------------------------------------------------------------------------------

DEAD = {"%DLQ%g": 1, "%RETRY%g": 1}
FORM = {"group": "g", "broker": "broker-a", "queue": "0", "offset": "0"}


def dead_letter(rig: Rig) -> None:
    store(
        *(rig, "%DLQ%g", b"order 1"),
        UNIQ_KEY=ID,
        RETRY_TOPIC="T",
        ORIGIN_MESSAGE_ID="O1",
        KEYS="k",
        TAGS="paid",
        colour="red",
        RECONSUME_TIME="16",
        DELAY="18",
        MAX_RECONSUME_TIMES="16",
    )


def test_dead_letters_are_listed_by_group() -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        dead_letter(rig)
        assert "/dead-letters/group?name=g" in (await rig.browser.get("/dead-letters")).text
        reply = await rig.browser.get("/dead-letters/group?name=g")
        assert ID in reply.text
        assert "Send again" not in reply.text
        assert "--allow-changes" in reply.text
        well_formed(reply)

    run(test, T=1, **DEAD)


async def log_in(rig: Rig) -> str:
    """Return the token of forms."""
    await rig.browser.post("/login", RIGHT)
    return (await rig.browser.get("/")).text.partition('name="token" value="')[2].partition('"')[0]


def test_a_dead_letter_goes_to_its_group_alone_and_as_if_it_had_never_failed(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        dead_letter(rig)
        token = await log_in(rig)
        assert "Send again" in (await rig.browser.get("/dead-letters/group?name=g")).text
        reply = await rig.browser.post("/dead-letters/send-again", FORM | {"token": token})
        assert (reply.status, reply.headers["location"]) == (303, "/dead-letters/group?name=g")
        page = await rig.browser.get(reply.headers["location"])
        assert f"Sent again to group g: {ID}" in page.text, page.text.partition("notice")[2][:300]
        assert "sent again 1970" in page.text
        (request,) = rig.broker.got(RequestCode.SEND_MESSAGE_V2)
        properties = dict(decode_properties(request.ext_fields["i"]))
        assert request.ext_fields["b"] == "%RETRY%g"
        assert properties["UNIQ_KEY"] == ID
        assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", "O1")
        assert (properties["TAGS"], properties["KEYS"], properties["colour"]) == ("paid", "k", "red")
        assert not {"RECONSUME_TIME", "DELAY", "MAX_RECONSUME_TIMES"} & properties.keys()

    run(test, settings=with_login(tmp_path, allow_changes=True), with_threads=True, T=1, **DEAD)


def test_a_change_needs_login_permission_and_a_form_of_ours(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        dead_letter(rig)
        assert (await rig.browser.post("/dead-letters/send-again", FORM)).headers["location"].startswith("/login")
        token = await log_in(rig)
        for form, headers in (
            (FORM, {}),
            (FORM | {"token": "x"}, {}),
            (FORM | {"token": token}, {"origin": "https://evil.example.com"}),
            (FORM | {"token": token}, {"sec_fetch_site": "same-site"}),
        ):
            assert (await rig.browser.post("/dead-letters/send-again", form, **headers)).status == 403
        assert (await rig.browser.get("/dead-letters/send-again")).status in (404, 405)
        assert not rig.broker.got(RequestCode.SEND_MESSAGE_V2)

    run(test, settings=with_login(tmp_path, allow_changes=True), with_threads=True, T=1, **DEAD)


def test_a_console_that_only_reads_changes_nothing(tmp_path: Path) -> None:
    for settings in (ConsoleSettings(), with_login(tmp_path)):

        async def test(rig: Rig) -> None:
            await rig.look()
            dead_letter(rig)
            token = await log_in(rig)
            assert (await rig.browser.post("/dead-letters/send-again", FORM | {"token": token})).status == 403
            assert not rig.broker.got(RequestCode.SEND_MESSAGE_V2)

        run(test, settings=settings, with_threads=True, T=1, **DEAD)


def test_a_dead_letter_that_cannot_be_sent_is_told(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        await rig.look()
        store(rig, "%DLQ%g", b"of the schedule", UNIQ_KEY="X")
        token = await log_in(rig)
        for offset, text in (("0", "Not sent: the message does not tell its topic"), ("9", "Not sent: no message at")):
            reply = await rig.browser.post("/dead-letters/send-again", FORM | {"token": token, "offset": offset})
            assert text in (await rig.browser.get(reply.headers["location"])).text
            assert text not in (await rig.browser.get(reply.headers["location"])).text, "it is told once"

    run(test, settings=with_login(tmp_path, allow_changes=True), with_threads=True, T=1, **DEAD)
