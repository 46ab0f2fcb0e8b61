"""BrokerController owns every table and every processor of the slow path.

Lives in the manager process, in one trio task tree: `load()`, then `run()` in a nursery, `stop()` at the end. The
reactor calls `processors()` once, then the SlowPath methods (remoting/fast_path.py) as records arrive.

Source: RocketMQ 4.9 `BrokerController`.
"""

from __future__ import annotations

import contextlib
import logging
import random
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from rocketpy.codes import RequestCode
from rocketpy.config import BrokerSettings
from rocketpy.errors import RequestRefused
from rocketpy.faults import Faults
from rocketpy.remoting.abc import Channel, Processor
from rocketpy.remoting.admin_guard import GUARDED_CODES
from rocketpy.remoting.bodies.broker import HaStatus
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.fast_path import FastPath, PullRequest, SendRequest, Traffic
from rocketpy.remoting.limits import PoolLoad, TableSize
from rocketpy.transport.duties import Duty, as_duty, as_work, run_duty
from rocketpy.transport.server import TaskStatus
from rocketpy.transport.steps import finished

from .clock import CHECK_INTERVAL_S, Clock, ProcessPauses, seconds_to_midnight
from .current_settings import CurrentSettings
from .delays.levels import DelayLevels, DelayProgress
from .delays.schedule import ScheduleService
from .managers.broker_stats import SAMPLE_S, BrokerHealth, BrokerStatsManager, WorkerCounters
from .managers.client_journal import ClientJournal, OpenChannel
from .managers.config_file import ConfigFile
from .managers.consumer import ConsumerManager
from .managers.consumer_filter import ConsumerFilterManager
from .managers.consumer_offset import ConsumerOffsetManager
from .managers.fast_path_tables import FastPathTables
from .managers.notify import MembersNotifier
from .managers.producer import ProducerManager
from .managers.rebalance_lock import RebalanceLockManager
from .managers.subscription_group import SubscriptionGroupManager
from .managers.table_followers import CHANGES
from .managers.topic_config import TopicConfigManager
from .memory.manager_memory import ManagerMemory
from .processors.accounts import AccountProcessor
from .processors.admin_broker import AdminBrokerProcessor
from .processors.admin_groups import AdminGroupProcessor
from .processors.admin_offsets import AdminOffsetProcessor
from .processors.admin_topics import AdminTopicProcessor
from .processors.cleaning import CleaningProcessor
from .processors.client_manage import ClientManageProcessor
from .processors.consume_stats import ConsumeStatsProcessor
from .processors.consumer_manage import ConsumerManageProcessor, commit_offset
from .processors.locks import LockProcessor
from .processors.queries import query_processors
from .processors.relay import RelayProcessor
from .processors.reply import ReplyProcessor
from .processors.reset_offset import ResetOffsetProcessor
from .processors.send_back import SendBackProcessor
from .processors.table import FollowedProcessor, GuardedProcessor, TableProcessor, guard_of
from .processors.transactions import TransactionProcessor
from .processors.unreadable import UnreadableProcessor
from .pulling.backlog import SLOW_READERS_S, BacklogMonitor, SlowReaders
from .pulling.slow_pull import SlowPull
from .registration.master_route import WATCH_S, MasterRoute
from .registration.outer_api import BrokerOuterApi, NameServerClient, RegisteredAs, RegistrationStatistics
from .runtime_info import WaterMarks
from .sending.passed_on_sends import PassedOnSends, PassingClient
from .sending.slow_send import SlowSend
from .services import BrokerServices
from .slaves.master_duties import MasterDuties
from .slaves.slave_synchronize import SlaveSynchronize
from .store_api import Store
from .topics_of_log import TopicsOfLog, adopt_queues, finish_deletions
from .transactions.transaction_progress import TransactionProgress
from .transactions.transaction_questions import Questions
from .transactions.transactions import TransactionService

if TYPE_CHECKING:
    from .access import AccessControl, AccountsKeeper

logger = logging.getLogger(__name__)

CONFIG_SAVE_S, FILTER_SAVE_S, CHECKS_SAVE_S = 1.0, 10.0, 10.0
WATER_MARKS_S, BACKLOG_S, CLIENT_SWEEP_S, LOCK_SWEEP_S, STORE_TRIM_S = 2.0, 15.0, 10.0, 60.0, 60.0
PROGRESS_S = 5.0
RESTART_S = 10.0  # of a duty that goes on by itself, when it has failed


@attrs.frozen(eq=False)
class ManagerProcess:
    """The process that a BrokerController lives in: its clocks and faults, and what it shares with other processes."""

    clock: Clock
    choose: random.Random
    counters: Callable[[], WorkerCounters]
    pool_loads: Callable[[], Mapping[str, PoolLoad]] = dict  # what waits for each pool, for statistics
    faults: Faults = attrs.field(factory=Faults)
    memory: ManagerMemory = attrs.field(factory=ManagerMemory.private)  # of the previous manager and of this one
    epoch: int = -1  # of a group's master; -1: none
    access: AccessControl | None = None  # None: every request is allowed
    accounts: AccountsKeeper | None = None  # with access control
    count_refused: Callable[[int], None] = lambda code: None  # a send that the manager answers with this code
    health: Callable[[], BrokerHealth] = BrokerHealth  # of all processes of the broker, for operators


class BrokerController:
    """A SlowPath, and the owner of all processors."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        fast_path: FastPath,
        name_server_client: NameServerClient,
        process: ManagerProcess,
    ) -> None:
        clock, memory, self.faults = process.clock, process.memory, process.faults
        current = CurrentSettings(settings)
        config_dir = Path(settings.store.store_path_root_dir) / "config"
        filters = ConsumerFilterManager(config_dir / "consumerFilter.json", current, clock, fast_path)
        tables = FastPathTables(fast_path, filters)
        self._pauses = pauses = ProcessPauses(clock)
        self.notifier = MembersNotifier(current)
        levels = DelayLevels.parse(settings.store.message_delay_level)
        delays = DelayProgress(config_dir / "delayOffset.json", levels.level_max, store, process.epoch)
        topics = TopicConfigManager(config_dir / "topics.json", current, clock, tables)
        self._outer_api = BrokerOuterApi(current, topics, name_server_client, clock)
        topics.on_change = lambda config: self._outer_api.topics_changed()
        offsets = _offsets(config_dir / "consumerOffset.json", current, clock, memory, store)
        producers, progress = ProducerManager(clock, pauses), TransactionProgress(config_dir, store, offsets)
        questions = Questions(
            config_dir / "transactionChecks.json",
            producers,
            lambda: current.broker.transaction_check_interval,
            None if process.access is None else process.access.may_send,
        )
        self.services = services = BrokerServices(
            settings=current,
            clock=clock,
            choose=process.choose,
            store=store,
            fast_path=fast_path,
            topics=topics,
            groups=SubscriptionGroupManager(config_dir / "subscriptionGroup.json", current, clock, tables),
            offsets=offsets,
            consumers=ConsumerManager(clock, tables, self.notifier.members_changed, pauses),
            filters=filters,
            producers=producers,
            locks=_locks(current, clock, memory, pauses),
            stats=BrokerStatsManager(current, process.counters, clock),
            schedule=ScheduleService(levels, delays, current, store, fast_path, topics),
            transactions=TransactionService(current, store, fast_path, topics, progress, questions),
            registrar=self._outer_api,
            pool_loads=process.pool_loads,
            health=process.health,
            access=process.access,
            accounts=process.accounts,
        )
        services.schedule.on_delivered, self.topics_of_log = services.stats.count_deliveries, TopicsOfLog(services)
        self.table_copier = SlaveSynchronize(name_server_client, services, self._outer_api)
        self.replication_status: Callable[[], HaStatus] = HaStatus  # the state of replication now
        self.backlog = BacklogMonitor(current, topics, services.groups, services.offsets, store, clock)
        self._slow_readers = SlowReaders(current, services.groups, services.stats)
        self._clients = ClientJournal(memory.clients_journal(), services.consumers, services.producers, clock)
        self._slow_send = SlowSend(services, self.faults, process.count_refused)
        self._slow_pull, self._role = SlowPull(services), MasterDuties()
        self._processors = self._make_processors()
        self._scope, self._finished = trio.CancelScope(), trio.Event()

    def _make_processors(self) -> list[TableProcessor]:
        services = self.services
        clients = self._client_manage = ClientManageProcessor(services)
        self._client_limits = (clients.groups_limit, clients.topics_limit)
        return [
            UnreadableProcessor(),
            clients,
            ConsumerManageProcessor(services),
            *query_processors(services.store, services.settings, services.access),
            SendBackProcessor(services),
            ReplyProcessor(services, self._slow_send.target),
            LockProcessor(services),
            AdminTopicProcessor(services),
            AdminGroupProcessor(services),
            AdminOffsetProcessor(services),
            AdminBrokerProcessor(services, lambda: self.replication_status()),
            AccountProcessor(services),
            CleaningProcessor(services),
            ConsumeStatsProcessor(services),
            ResetOffsetProcessor(services),
            RelayProcessor(services),
            TransactionProcessor(services),
        ]

    def processors(self) -> Mapping[int, Processor]:
        """Return the processors by request code. The reactor answers other codes with 3; its table says which pool
        serves which code."""
        guard, awaits_slaves = guard_of(self.services.settings.value), self.services.settings.value.is_sync_master
        found: dict[int, Processor] = {code: each for each in self._processors for code in each.codes}
        if awaits_slaves:
            found |= {code: FollowedProcessor(found[code], self.services.followers) for code in CHANGES}
        return {code: GuardedProcessor(each, guard) if code in GUARDED_CODES else each for code, each in found.items()}

    def inline(self) -> Mapping[int, Callable[[RemotingCommand, Channel], RemotingCommand | None]]:
        """Return, by request code, functions that serve a request in the loop, or leave it to its processor by None."""
        return {RequestCode.HEART_BEAT: self._client_manage.renew}

    def table_sizes(self) -> list[TableSize]:
        """Sizes of the tables that clients can fill, for metrics."""
        services = self.services
        return [
            services.topics.limit.size(len(services.topics.topics)),
            services.groups.limit.size(len(services.groups.groups)),
            services.offsets.limit.size(len(services.offsets)),
            services.locks.limit.size(len(services.locks)),
            *(limit.size(None) for limit in self._client_limits),
            self._clients.size,
        ]

    # --- life ---------------------------------------------------------------------------------------------------------

    def load(
        self, open_channel: OpenChannel | None = None, is_gone: Callable[[int], bool] = lambda connection: False
    ) -> None:
        """Read all tables.

        Args:
            open_channel, is_gone: for connections of the previous manager's clients (client_journal.py); None if there
            are none.
        Raises:
            ConfigError: a damaged file without a usable .bak.
        """
        services = self.services
        services.topics.load()
        services.offsets.load()
        services.groups.load()
        services.schedule.load()
        services.transactions.load()
        services.filters.load()
        adopt_queues(services)
        if open_channel is not None:
            self._clients.restore(open_channel, is_gone)

    @property
    def registration(self) -> RegistrationStatistics:
        """State of the registration with the name servers."""
        return self._outer_api.statistics

    async def run(self, *, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send all tables to the send and pull workers, then run the background duties until `stop()`. Started when all
        tables are sent."""
        services = self.services
        services.transactions.open_topics()
        await services.topics.announce()
        await services.groups.announce()
        services.tell_broker_changed()
        await self.topics_of_log.forget_others()
        services.fast_path.tables_end()
        finish_deletions(services)
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    self._slow_send.open(nursery)
                    self._slow_pull.open(nursery)
                    self._pauses.begin()
                    for duty in self.duties():
                        nursery.start_soon(run_duty, duty, self.faults)
                    task_status.started(None)
        finally:
            with trio.CancelScope(shield=True):
                if not services.settings.is_slave:
                    services.transactions.keep_progress()
                    services.transactions.keep_progress()  # of the op queue it keeps the progress of the call before
                services.schedule.end()
                for file in self._files:
                    await self._save_at_last(file)
                await services.topics.position.keep(sync=False)  # changes of roles do not wait for it
            self._finished.set()

    async def _save_at_last(self, file: ConfigFile) -> None:
        """Save one table; a failure does not keep the others from being saved."""
        try:
            await file.save(last=True)
        except Exception as exc:
            self.faults.report(f"saving {file.path.name}", exc)

    def be_member(
        self, own_id: int, mastership: Callable[[], int | None], followed: Callable[[], str | None], link: PassingClient
    ) -> None:
        """Before `run`, of a group with automatic failover: this broker is not the master yet.

        Args:
            mastership: the epoch of which this broker is the master now; None: it is not certain.
            followed: the address of the master that this broker follows; None: it follows none.
            link: its connections carry sends that are passed on, and nothing else: a large table delays none.
        """
        self._role.switch(False)
        if self.services.settings.is_slave:
            sends = self._slow_send
            sends.passed_on = PassedOnSends(link, self.services.clock, sends.sends, sends.refuse, followed)

        def member() -> RegisteredAs | None:
            epoch = mastership() if self._role.is_master else None
            if self._role.is_master:
                return None if epoch is None else RegisteredAs(0, epoch)
            return RegisteredAs(own_id)

        self._outer_api.member = member

    def be_master(self, is_master: bool) -> None:
        """Begin or end a master's duties, with automatic failover, and tell all name servers at once."""
        if is_master and not self._role.is_master:
            self.services.topics.next_version()  # name servers read the table of another broker 0 anew
        self._role.switch(is_master)
        self._outer_api.topics_changed()

    async def stop(self, *, unregister: bool = True) -> None:
        """Unregister from the name servers, end the duties, save every table."""
        if unregister:
            await self._outer_api.unregister()
        self._scope.cancel()
        await self._finished.wait()

    def duties(self) -> list[Duty]:
        """The background duties. A duty that fails affects neither other duties nor requests."""
        services, settings = self.services, self.services.settings
        stats = services.stats
        duties = [  # they save what no request waits for: groups created by pulls, order flags, failed saves
            Duty("detecting process pauses", CHECK_INTERVAL_S, as_duty(self._pauses.check)),
            Duty("saving topics", CONFIG_SAVE_S, services.topics.file.save),
            Duty("keeping the position of topics", RESTART_S, self.topics_of_log.run, first_s=0.0),
            Duty("saving subscription groups", CONFIG_SAVE_S, services.groups.file.save),
            Duty("saving offsets", settings.broker.flush_consumer_offset_interval / 1000, services.offsets.file.save),
            Duty("saving delays", settings.store.flush_delay_offset_interval / 1000, services.schedule.file.save),
            Duty("saving the progress of transactions", PROGRESS_S, services.transactions.progress.file.save),
            Duty("saving filters", FILTER_SAVE_S, services.filters.save),
            Duty("closing silent clients", CLIENT_SWEEP_S, self._sweep_clients),
            Duty("trimming the store", STORE_TRIM_S, as_duty(services.store.trim)),
            Duty("dropping expired locks", LOCK_SWEEP_S, as_work(services.locks.sweep)),
            Duty("sampling counters", SAMPLE_S, as_duty(stats.sample_counters)),
            Duty("sampling minutes", 10.0, as_work(stats.sample_minute), first_s=0.0),
            Duty("sampling hours", 600.0, as_work(stats.sample_hour)),
            Duty("sampling days", 3600.0, as_work(stats.sample_day)),
            Duty("counting days", 1.0, self._count_day, first_s=0.0),
            Duty("logging water marks", WATER_MARKS_S, as_duty(WaterMarks(services.pool_loads).look)),
            Duty("looking for groups that are behind", BACKLOG_S, self.backlog.look),
            Duty("switching off slow groups", SLOW_READERS_S, as_work(self._slow_readers.switch_off_slow_groups)),
            Duty("telling members of changes", RESTART_S, self.notifier.run, first_s=0.0),
            Duty("registration", RESTART_S, self._outer_api.run, first_s=0.0),
        ]
        if services.accounts is not None:
            duties.append(services.accounts.duty)
        if settings.is_slave:
            return [*duties, Duty("copying the master's tables", RESTART_S, self.table_copier.run, first_s=0.0)]
        transactions, interval_s = services.transactions, settings.broker.transaction_check_interval / 1000
        role = self._role
        if settings.store.is_automatic:
            duties.append(
                Duty("watching the route to this master", WATCH_S, MasterRoute(settings, self._outer_api).look)
            )
        return [
            *duties,
            Duty("delivering delayed messages", RESTART_S, role.while_master(services.schedule.run), first_s=0.0),
            Duty("checking transactions", interval_s, role.if_master(transactions.check)),
            Duty("storing old half messages again", PROGRESS_S, role.if_master(transactions.renew)),
            Duty("keeping the progress of transactions", PROGRESS_S, as_duty(transactions.keep_progress)),
            Duty("saving checks of transactions", CHECKS_SAVE_S, transactions.questions.file.save),
        ]

    @property
    def _files(self) -> list[ConfigFile]:
        services = self.services
        transactions = services.transactions
        tables = (services.topics, services.groups, services.offsets, services.schedule, transactions.questions)
        return [*(table.file for table in tables), transactions.progress.file, services.filters.file]

    async def _sweep_clients(self) -> None:
        """Close the connections of clients that have been silent for 120 s."""
        self._pauses.check()
        try:
            await self._close_silent(self.services.consumers.sweep())
        finally:
            await self._close_silent(self.services.producers.sweep())

    @staticmethod
    async def _close_silent(sweep: Generator[None, None, list[Channel]]) -> None:
        for channel in await finished(sweep):
            logger.info("closed the connection of client %s: it has not sent a heartbeat for 120 s", channel.peer)
            channel.close()

    async def _count_day(self) -> None:
        await trio.sleep(seconds_to_midnight(self.services.clock.now_ms()))
        self.services.stats.new_day()

    # --- what the reactor calls (SlowPath) ----------------------------------------------------------------------------

    def slow_send(self, request: SendRequest) -> None:
        self._slow_send.submit(request)

    def slow_pull(self, request: PullRequest) -> None:
        self._slow_pull.submit(request)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int, received_ms: int) -> None:
        overtaken = self.services.offsets.was_updated_since(group, topic, queue_id, received_ms)
        if not overtaken and not self.services.settings.is_slave:
            with contextlib.suppress(RequestRefused):  # counted by the table; the pull is served
                commit_offset(self.services, group, topic, queue_id, offset)

    def count_traffic(self, traffic: Traffic) -> None:
        self.services.stats.count_traffic(traffic)

    def finish(self) -> bool:
        self.services.schedule.finish()
        return self._slow_send.finish()

    def connection_closing(self, connection: int) -> None:
        self._clients.closing(connection)

    def connection_closed(self, connection: int) -> None:
        self._clients.closed(connection)

    def drop_connections(self, is_gone: Callable[[int], bool]) -> Iterator[None]:
        return self._clients.lose(is_gone)


def _offsets(
    path: Path, settings: CurrentSettings, clock: Clock, memory: ManagerMemory, store: Store
) -> ConsumerOffsetManager:
    return ConsumerOffsetManager(
        path,
        memory.offsets_journal(),
        started_ms=clock.monotonic_ms() - 1,
        entries_max=lambda: settings.rocketpy.consumer_offsets_max,
        log_end=store.log_end,
    )


def _locks(
    settings: CurrentSettings, clock: Clock, memory: ManagerMemory, pauses: ProcessPauses
) -> RebalanceLockManager:
    return RebalanceLockManager(
        clock,
        memory.locks_journal(),
        unknown_until_ms=memory.locks.unknown_until_ms,
        pauses=pauses,
        locks_max=lambda: settings.rocketpy.queue_locks_max,
    )
