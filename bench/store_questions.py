"""The questions of `bench.store_bars`: what each does with the brokers, and the figures that it takes."""

from __future__ import annotations

import contextlib
import re
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs

from rocketpy.bench import proc
from rocketpy.bench.load import Load, Mode, Workload
from rocketpy.bench.own_broker import HOST

from .ballast import full_page_cache
from .brokers import ROOT, WARM_UP_S, Broker, BrokerFailed, boot, running, work_directory
from .control import decode_records
from .lag import ControlView, LagSampler
from .scenarios import QUEUES, Bar
from .turn import TOPIC_SEND, TOPIC_WARM_UP, Watch, figures, wait_until_stored, warm_up

TOPIC_FILL = "bench_fill"
FILL_BODY, FILL_BATCH = 1024, 32
ROLLING_FILE_SIZE = 64 << 20  # of the open loop: 10 000 messages a second fill it in five seconds
SCANNED = re.compile(r"\((\d+) bytes\) scanned in ([0-9.]+) s")
Figures = dict[str, float]


@attrs.frozen
class Setup:
    """Options of a run of the questions."""

    quick: bool
    minutes: float  # of the open loop
    repeat: int  # restarts of each; turns under sync flush
    targets: Sequence[str]
    watch: Callable[[str], Watch]  # by target
    fills_page_cache: bool = False  # before each broker of a comparison (ballast.py)
    root: Path = ROOT  # the checkout of rocketpy that is asked to restart or to hold many queues

    def page_cache(self) -> contextlib.AbstractContextManager[None]:
        return full_page_cache(Path(tempfile.gettempdir())) if self.fills_page_cache else contextlib.nullcontext()

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@attrs.frozen
class Answer:
    """Figures and errors by target."""

    figures: Mapping[str, Figures]
    errors: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)


@contextlib.contextmanager
def serving(target: str, directory: Path, root: Path = ROOT) -> Iterator[Broker]:
    """Run a broker of the checkout `root` on the directory, gone at the end if it was not killed before."""
    broker = boot(target, directory, root=root)
    try:
        yield broker
    finally:
        broker.stop()


def open_load(broker: Broker, workload: Workload, topics: str | Sequence[str], queues: int = QUEUES) -> Load:
    return Load(workload, host=HOST, port=broker.port, topic=topics, queues=queues)


def fill(broker: Broker, size: int, watch: Watch) -> None:
    """Send batches until the log has grown by about `size` bytes, and wait until they are dispatched."""
    broker.create_topic(TOPIC_FILL, QUEUES)
    requests = size // ((FILL_BODY + 250) * FILL_BATCH)
    workload = Workload(Mode.SEND, 16, 4, FILL_BODY, batch=FILL_BATCH, requests_max=requests)
    with open_load(broker, workload, TOPIC_FILL) as load:
        load.run(600, watch(f"fill the log with {size >> 20} MiB"))
        messages = load.result(1.0, 0.0).messages
    wait_until_stored(broker, TOPIC_FILL, messages)


def create_topics(broker: Broker, count: int, queues: int, watch: Watch) -> list[str]:
    topics = [f"bench_many_{index:05}" for index in range(count)]
    progress = watch(f"create {count} topics of {queues} queues")
    with broker.control() as control:
        for index, topic in enumerate(topics):
            control.create_topic(topic, queues)
            progress(0.0, index + 1, 0)
    return topics


def send_to_each(broker: Broker, topics: Sequence[str], queues: int, watch: Watch) -> None:
    """Send one message to every queue.

    Raises:
        BrokerFailed: not every one was acknowledged.
    """
    count = len(topics) * queues
    workload = Workload(Mode.SEND, 16, 16, 128, requests_max=count, timeout_s=30.0)
    with open_load(broker, workload, topics, queues) as load:
        load.run(120, watch(f"send to {count} queues"))
        result = load.result(1.0, 0.0)
    if result.messages < count:
        raise BrokerFailed(f"{broker.target} took {result.messages} of {count} messages: {result.errors}")


def kill_under_load(broker: Broker, topics: Sequence[str], queues: int, seconds: float) -> None:
    """SIGKILL the whole tree while 64 connections send to all queues.

    Raises:
        BrokerFailed: nothing was acknowledged before.
    """
    workload = Workload(Mode.SEND, 64, 4)
    with open_load(broker, workload, topics, queues) as load:
        killer = threading.Timer(seconds, broker.kill)
        killer.start()
        with contextlib.suppress(ConnectionError):  # what a kill is for
            load.run(seconds + 30)
        killer.join()
        if not load.result(seconds, 0.0).messages:
            raise BrokerFailed(f"{broker.target} acknowledged nothing under load")


def prepare(broker: Broker, setup: Setup, watch: Watch) -> None:
    """Create the topics of a load, and warm the broker."""
    for topic in (TOPIC_SEND, TOPIC_WARM_UP):
        broker.create_topic(topic, QUEUES)
    seconds = WARM_UP_S[broker.target]
    warm_up(broker, max(2.0, seconds / 2) if setup.quick else seconds, watch)


def measure_in_turn(setup: Setup, name: str, workload: Workload, seconds: float, settings: Mapping[str, str]) -> Answer:
    """Measure one load on a fresh, warm broker of each target."""
    found: dict[str, Figures] = {}
    errors: dict[str, Mapping[str, int]] = {}
    for target in setup.targets:
        watch = setup.watch(target)
        with setup.page_cache(), running(target, settings=settings) as broker:
            prepare(broker, setup, watch)
            with open_load(broker, workload, TOPIC_SEND) as load:
                result = load.measure(seconds, warm_up_s=2.0, progress=watch(name))
            broker.check_alive()
        found[target], errors[target] = figures(result, 0.0), result.errors
    return Answer(found, errors)


def medians(turns: Sequence[Answer]) -> Answer:
    """Return the median of each figure of each target; errors are added up."""
    found: dict[str, Figures] = {}
    errors: dict[str, dict[str, int]] = {}
    for target, figures_of_first in turns[0].figures.items():
        found[target] = {
            name: statistics.median(turn.figures[target][name] for turn in turns) for name in figures_of_first
        }
        errors[target] = dict(sum((Counter(turn.errors.get(target, {})) for turn in turns), Counter()))
    return Answer(found, errors)


# --- the questions ---


def restart(setup: Setup) -> Answer:
    """Seconds from a restart after kill -9 under load to the first acknowledged send, on the same store.

    rocketpy fills the store and is killed; then each broker in turn is started on it, loaded, and killed.
    """
    topic_count, queues = setup.pick(100, 10), 100
    found: dict[str, Figures] = {}
    with work_directory("restart") as directory:
        watch = setup.watch("rocketpy")
        with serving("rocketpy", directory, setup.root) as broker:
            topics = create_topics(broker, topic_count, queues, watch)
            send_to_each(broker, topics, queues, watch)
            fill(broker, setup.pick(5 << 30, 512 << 20), watch)
            kill_under_load(broker, topics, queues, setup.pick(3, 1))
        for target in setup.targets:
            boots = []
            for _ in range(setup.repeat):
                setup.watch(target)("restart")
                with setup.page_cache(), serving(target, directory, setup.root) as broker:
                    boots.append(broker.boot_s)
                    kill_under_load(broker, topics, queues, setup.pick(3, 1))
            log_bytes = sum(path.stat().st_blocks * 512 for path in (directory / "store" / "commitlog").iterdir())
            found[target] = {
                "restart_s": round(statistics.median(boots), 3),
                "restart_max_s": round(max(boots), 3),
                "queues": topic_count * queues,
                "log_gib": round(log_bytes / 2**30, 2),
            }
    return Answer(found)


def scan(setup: Setup) -> Answer:
    """Verification of the whole log after a power loss with nothing known to be flushed."""
    watch = setup.watch("rocketpy")
    with work_directory("scan") as directory:
        with serving("rocketpy", directory) as broker:
            fill(broker, setup.pick(5 << 30, 512 << 20), watch)
            broker.kill()
            store = broker.store
        view = ControlView(store)
        view.power_loss()
        view.close()
        watch("start after a power loss")
        with serving("rocketpy", directory) as broker:
            log = (directory / "rocketpy.log").read_text()
            boot_s = broker.boot_s
    match = SCANNED.search(log)
    if match is None:
        raise BrokerFailed(f"the log of the broker reports no recovery scan: {log[-500:]}")
    size, seconds = int(match[1]), max(float(match[2]), 1e-3)
    gb_per_s = round(size / seconds / 1e9, 2)
    return Answer(
        {"rocketpy": {"scan_gb_per_s": gb_per_s, "scanned_gib": round(size / 2**30, 2), "boot_s": round(boot_s, 3)}}
    )


def sync_flush(setup: Setup) -> Answer:
    """Rate and latency when each answer waits for the disk: 64 connections, one request each.

    The brokers take turns, since a disk is faster at one time than at another; medians.
    """
    settings = {"flushDiskType": "SYNC_FLUSH"}
    turns = [
        measure_in_turn(setup, "sync flush", Workload(Mode.SEND, 64, 1), setup.pick(10, 4), settings)
        for _ in range(setup.repeat)
    ]
    return medians(turns)


def dispatch_lag(setup: Setup) -> Answer:
    """Wait of a message for its consume queue unit under full load, and for its consumer in a calm one."""
    watch, seconds = setup.watch("rocketpy"), setup.pick(5, 2)
    with running("rocketpy") as broker:
        prepare(broker, setup, watch)
        workload = Workload(Mode.SEND, 64, 64, requests_max=seconds * 1_000_000)
        with open_load(broker, workload, TOPIC_SEND) as load, LagSampler(broker.store) as sampler:
            result = load.measure(seconds, progress=watch("64x64"))
        broker.check_alive()
    found = {"rocketpy": sampler.figures() | {"messages_per_s": result.messages_per_s}}
    for target in setup.targets:
        watch = setup.watch(target)
        with running(target) as broker:
            prepare(broker, setup, watch)
            with open_load(broker, Workload(Mode.END_TO_END, 4, 64, rate=10_000), TOPIC_SEND) as load:
                calm = load.measure(setup.pick(20, 5), warm_up_s=2.0, progress=watch("10 000/s end to end"))
            broker.check_alive()
        seen = figures(calm, 0.0)
        found.setdefault(target, {}).update({key: seen[key] for key in seen if key.startswith("end_to_end")})
    return Answer(found)


def open_loop(setup: Setup) -> Answer:
    """Latest answers while files roll: 10 000 messages a second, due at fixed times."""
    seconds = 20.0 if setup.quick else setup.minutes * 60
    settings = {"mappedFileSizeCommitLog": str(ROLLING_FILE_SIZE)}
    return measure_in_turn(setup, "open loop 10 000/s", Workload(Mode.SEND, 16, 64, rate=10_000), seconds, settings)


def many_queues(setup: Setup) -> Answer:
    """Cost of 100 000 queues: memory, mappings, and the next start."""
    watch, topic_count, queues = setup.watch("rocketpy"), setup.pick(1000, 100), 100
    count = topic_count * queues
    with work_directory("many-queues") as directory:
        with serving("rocketpy", directory, setup.root) as broker:
            broker.create_topic(TOPIC_SEND, QUEUES)
            before = memory_kib(broker)
            topics = create_topics(broker, topic_count, queues, watch)
            created = memory_kib(broker)
            send_to_each(broker, topics, queues, watch)
            missing = read_each(broker, topics, queues, watch)
            after, mappings = memory_kib(broker), max(map(proc.mappings, proc.tree(broker.roots[0])))
            broker.kill()
        watch("restart")
        with serving("rocketpy", directory, setup.root) as broker:
            boot_s = broker.boot_s
            rebooted = memory_kib(broker)
            missing += read_each(broker, topics, queues, watch)

    def per_queue(kib: Mapping[str, int], name: str) -> float:
        return round((kib[name] - before.get(name, 0)) * 1024 / count, 1)

    found = {"queues": float(count), "unread": float(missing), "boot_s": round(boot_s, 3), "mappings": float(mappings)}
    found["bytes_per_queue_created"] = round(sum(per_queue(created, name) for name in created), 1)
    found["bytes_per_queue"] = round(sum(per_queue(after, name) for name in after), 1)
    found["bytes_per_queue_rebooted"] = round(sum(per_queue(rebooted, name) for name in rebooted), 1)
    return Answer({"rocketpy": found | {f"bytes_per_queue {name}": per_queue(after, name) for name in after}})


def memory_kib(broker: Broker) -> dict[str, int]:
    """PSS by the name of the process; the store's files do not count, but the control block does."""
    found: dict[str, int] = {}
    files = [broker.store / name for name in ("commitlog", "consumequeue", "index")]
    names = broker.process_names()
    for pid, kib in proc.pss_kib_by_process(broker.roots, files).items():
        name = names.get(pid, "supervisor")
        found[name] = found.get(name, 0) + kib
    return found


def read_each(broker: Broker, topics: Sequence[str], queues: int, watch: Watch) -> int:
    """Read the first message of every queue, when all are dispatched; how many queues did not give it."""
    with broker.control() as control:
        control.wait_for_offsets(topics[-1], queues, queues)
        wanted = [(topic, queue_id) for topic in topics for queue_id in range(queues)]
        progress, read = watch(f"read {len(wanted)} queues"), 0
        for index, reply in enumerate(control.pull_each(wanted)):
            messages = list(decode_records(reply.body, 0)) if reply.code == 0 else []
            read += len(messages) == 1 and messages[0].queue_offset == 0
            progress(0.0, index + 1, index + 1 - read)
    return len(wanted) - read


@attrs.frozen
class Question:
    ask: Callable[[Setup], Answer]
    bars: tuple[Bar, ...]
    metrics: tuple[str, ...]  # shown besides the bars'


QUESTIONS: Mapping[str, Question] = {
    "restart": Question(
        restart,
        (Bar("restart_s", 1, at_least=False, is_ratio=False), Bar("restart_s", 0.05, at_least=False)),
        ("log_gib", "queues"),
    ),
    "scan": Question(scan, (Bar("scan_gb_per_s", 2, is_ratio=False),), ("scanned_gib", "boot_s")),
    "sync-flush": Question(
        sync_flush, (Bar("messages_per_s", 2), Bar("p99_us", 0.5, at_least=False)), ("p50_us", "max_us")
    ),
    "dispatch-lag": Question(
        dispatch_lag,
        (Bar("lag_median_ms", 50, at_least=False, is_ratio=False), Bar("end_to_end_p99_us", 0.5, at_least=False)),
        ("lag_max_ms", "messages_per_s", "end_to_end_p50_us"),
    ),
    "open-loop": Question(
        open_loop, (Bar("p999_us", 1 / 3, at_least=False), Bar("max_us", 0.5, at_least=False)), ("p50_us", "p99_us")
    ),
    "many-queues": Question(
        many_queues,
        (
            Bar("boot_s", 3, at_least=False, is_ratio=False),
            Bar("mappings", 65_530, at_least=False, is_ratio=False),
            Bar("unread", 0, at_least=False, is_ratio=False),
        ),
        ("queues", "bytes_per_queue_created", "bytes_per_queue", "bytes_per_queue_rebooted"),
    ),
}
