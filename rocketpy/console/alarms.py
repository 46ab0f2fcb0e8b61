"""Alarms: conditions of groups and brokers that are raised once, repeated while they last, and cleared.

`look` compares what the poller has seen with the limits; it asks nobody. Figures that are older than STALE_MS tell
nothing: an alarm about them stays as it is. A time in which the console was stopped makes no broker silent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from urllib.parse import quote

import attrs

from .alarm_file import AlarmSettings
from .cluster import BrokerState, ClusterState
from .conditions import MINUTE_MS, OF_GROUPS, OF_HEALTH, Condition, broker_page, conditions_of_health

ALARMS_MAX = 1000  # of groups, at the same time; those of brokers are bounded by the number of brokers
STALE_MS = 15 * 60_000
PAUSE_MS = 30_000  # between two looks of a console that runs are seconds
CLEARED_MAX = 50  # that the page remembers


class Change(Enum):
    """The reason of a notice."""

    RAISED = "raised"
    REPEATED = "repeated"
    CLEARED = "cleared"


@attrs.define
class Alarm:
    """A condition that lasts. `told_ms`: the last notice."""

    condition: Condition
    raised_ms: float
    told_ms: float
    cleared_ms: float | None = None


@attrs.frozen
class Notice:
    """A change of an alarm, for webhook and mail. `link` is empty if the file does not tell the console's address."""

    change: Change
    condition: Condition
    raised_ms: float
    now_ms: float
    link: str


@attrs.define(eq=False)
class Alarms:
    """All alarms of the console. `left_out`: conditions of groups beyond ALARMS_MAX at the last look."""

    settings: AlarmSettings
    active: dict[tuple[str, str], Alarm] = attrs.field(factory=dict)
    cleared: list[Alarm] = attrs.field(factory=list)
    left_out: int = 0
    _masterless_ms: dict[tuple[str, str], float] = attrs.field(init=False, factory=dict)  # since when
    _silent_ms: dict[str, float] = attrs.field(init=False, factory=dict)  # since when, of brokers that do not answer
    _looked_ms: float | None = attrs.field(init=False, default=None)

    def look(self, state: ClusterState, now_ms: float) -> list[Notice]:
        """Compare, and return what is to be told."""
        self._excuse_pause(now_ms)
        found = {condition.key: condition for condition in self._conditions(state, now_ms)}
        unknown = set(self._unknown(state, now_ms))
        notices = []
        for key in [key for key in self.active if key not in found and key not in unknown]:
            alarm = self.active.pop(key)
            alarm.cleared_ms = now_ms
            self.cleared = [alarm, *self.cleared][:CLEARED_MAX]
            notices.append(self._notice(Change.CLEARED, alarm, now_ms))
        self.left_out = 0
        room = ALARMS_MAX - sum(kind in OF_GROUPS for kind, _ in self.active)
        for key, condition in found.items():
            known = self.active.get(key)
            if known is not None:
                known.condition = condition
                if now_ms - known.told_ms >= self.settings.repeat_minutes * MINUTE_MS:
                    known.told_ms = now_ms
                    notices.append(self._notice(Change.REPEATED, known, now_ms))
            elif condition.kind not in OF_GROUPS or room > 0:
                room -= condition.kind in OF_GROUPS
                self.active[key] = Alarm(condition, now_ms, now_ms)
                notices.append(self._notice(Change.RAISED, self.active[key], now_ms))
            else:
                self.left_out += 1
        return notices

    def _excuse_pause(self, now_ms: float) -> None:
        """Move the times since when brokers are silent: the console was stopped meanwhile, or its clock was set."""
        step_ms = 0.0 if self._looked_ms is None else now_ms - self._looked_ms
        self._looked_ms = now_ms
        if not 0 <= step_ms <= PAUSE_MS:
            self._silent_ms = {label: since_ms + step_ms for label, since_ms in self._silent_ms.items()}
            self._masterless_ms = {key: since_ms + step_ms for key, since_ms in self._masterless_ms.items()}
        for alarm in self.active.values() if step_ms < 0 else ():
            alarm.told_ms += step_ms  # or it would not be repeated until the clock has caught up

    def _notice(self, change: Change, alarm: Alarm, now_ms: float) -> Notice:
        link = self.settings.link and self.settings.link + alarm.condition.page
        return Notice(change, alarm.condition, alarm.raised_ms, now_ms, link)

    def _conditions(self, state: ClusterState, now_ms: float) -> Iterator[Condition]:
        yield from self._of_brokers(state, now_ms)
        for group in state.groups.values():
            if not group.sampled_ms or now_ms - group.sampled_ms > STALE_MS:
                continue
            rule = self.settings.rule_of(group.name)
            if rule is None:
                continue
            page = f"/group?name={quote(group.name, safe='')}"
            if rule.backlog is not None and group.lag > rule.backlog:
                text = f"group {group.name}: {group.lag} messages not consumed, limit {rule.backlog}"
                yield Condition("backlog", group.name, text, group.lag, rule.backlog, page)
            if rule.age_minutes is not None and group.age_ms and group.age_ms > rule.age_minutes * MINUTE_MS:
                minutes = group.age_ms / MINUTE_MS
                text = f"group {group.name}: a message has waited for {minutes:.1f} min, limit {rule.age_minutes:g} min"
                yield Condition("age", group.name, text, round(minutes, 1), rule.age_minutes, page)

    def _of_brokers(self, state: ClusterState, now_ms: float) -> Iterator[Condition]:
        limit = self.settings.broker.disk_percent
        yield from self._silent(state, now_ms)
        for broker in state.sorted_brokers():
            percent = broker.disk_percent
            if broker.is_up and percent is not None and percent > limit:
                text = f"broker {broker.label}: disk {percent:.1f} % full, limit {limit:g} %"
                yield Condition("disk", broker.label, text, round(percent, 1), limit, broker_page(broker.name))
            if broker.is_up and not broker.error:
                yield from conditions_of_health(broker, self.settings.broker, now_ms)
        if state.error:  # without name servers nothing new is known of masters
            return
        without, allowed_s = state.without_master(), self.settings.broker.no_master_seconds
        self._masterless_ms = {key: self._masterless_ms.get(key, now_ms) for key in without}
        for (cluster, name), since_ms in self._masterless_ms.items():
            seconds = (now_ms - since_ms) / 1000
            if seconds >= allowed_s:
                text = (
                    f"broker {name} of cluster {cluster}: no master answers for {seconds:.0f} s, limit {allowed_s:g} s"
                )
                yield Condition("no_master", f"{cluster}/{name}", text, round(seconds), allowed_s, broker_page(name))

    def _silent(self, state: ClusterState, now_ms: float) -> Iterator[Condition]:
        """Yield each broker, master or slave, that has not answered for its time."""
        down = {broker.label: broker for broker in state.sorted_brokers() if not broker.is_up}
        self._silent_ms = {label: self._silent_ms.get(label, now_ms) for label in down}
        allowed_s = self.settings.broker.no_answer_seconds
        for label, since_ms in self._silent_ms.items():
            seconds = (now_ms - since_ms) / 1000
            if seconds >= allowed_s:
                text = f"broker {label}: {_silence(down[label])} for {seconds:.0f} s, limit {allowed_s:g} s"
                yield Condition("no_answer", label, text, round(seconds), allowed_s, broker_page(down[label].name))

    def _unknown(self, state: ClusterState, now_ms: float) -> Iterator[tuple[str, str]]:
        """Yield the alarms whose figures are not known now, or are only those of some brokers."""
        up = {broker.label for broker in state.brokers.values() if broker.is_up and not broker.error}
        listed = {broker.label for broker in state.brokers.values()}
        for kind, subject in self.active:
            group = state.groups.get(subject)
            if kind in OF_GROUPS and group is not None:
                is_unknown = bool(group.error) or now_ms - group.sampled_ms > STALE_MS
            elif kind == "disk" or kind in OF_HEALTH:
                is_unknown = subject in listed - up
            else:
                is_unknown = kind == "no_master" and bool(state.error)
            if is_unknown:
                yield kind, subject


def _silence(broker: BrokerState) -> str:
    role = "master" if broker.is_master else "slave"
    if not broker.is_listed:
        return f"this {role} is gone from the name servers"
    return f"this {role} does not answer ({broker.error})" if broker.error else f"this {role} does not answer"


def as_json(notice: Notice) -> Mapping[str, object]:
    """Return the object that a webhook gets."""
    condition = notice.condition
    return {
        "text": f"{notice.change.value}: {condition.text}" + (f" {notice.link}" if notice.link else ""),
        "state": notice.change.value,
        "kind": condition.kind,
        "subject": condition.subject,
        "value": condition.value,
        "limit": condition.limit,
        "raised_ms": int(notice.raised_ms),
        "time_ms": int(notice.now_ms),
        "link": notice.link,
    }
