"""The alerts of `deploy/prometheus/rules.yml`: in promtool each fires on its series, and not beside them; in a running
Prometheus, which scrapes the same series, each fires as well."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from tests.support.etcd import free_ports
from tests.support.played_series import Exporter
from tests.support.prometheus import (
    FILES,
    FIRES_S,
    alerts,
    minutes_as_seconds,
    needs_prometheus,
    prometheus_of,
    promtool,
)
from tests.support.rules import ROOT
from tests.support.waiting import wait_until

pytestmark = needs_prometheus

DAY_S = 86_400
LATER = "15m"  # the time of the evaluation, after series that begin at 0; one sample a minute
RULES = FILES / "rules.yml"
DURATION = re.compile(r"(?<!\w)(\d+)(ms|s|m|h)\b")  # any that stands alone
UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}
RISES, STAYS = "0+1x90", "5x90"  # a counter that counts one a minute, and one that counts nothing


@attrs.frozen
class Case:
    """Series of an alert by name and labels: those at which it fires, and those at which it does not."""

    alert: str
    fires: dict[str, str]
    is_quiet: dict[str, str]


def case(alert: str, series: str, fires: str, is_quiet: str) -> Case:
    return Case(alert, {series: fires}, {series: is_quiet})


MEMBER = 'rocketpy_ha_member{instance="a",state="master"}'
OTHER = 'rocketpy_ha_member{instance="b",state="master"}'
GROUP = {f'rocketpy_build_info{{instance="{name}",cluster="c",broker="g"}}': "1x90" for name in "ab"}
SLAVES = 'rocketpy_ha_slaves{state="replicating"}'
PUBLISHED = "rocketpy_store_published_offset_bytes"
CLOCK, REGISTERED = "rocketpy_clock_seconds", "rocketpy_registration_last_success_seconds"

CASES = (
    case("RocketpyDown", 'up{job="rocketpy-broker",instance="a"}', "0x90", "1x90"),
    case("RocketpyDown", 'up{job="rocketpy-namesrv",instance="a"}', "1x13 0x77", "1x14 0x1 1x75"),
    case("RocketpyWorkerHangs", 'rocketpy_worker_heartbeat_age_seconds{worker="send"}', "6x90", "5x90"),
    case("RocketpyWorkerReplaced", 'rocketpy_worker_restarts_total{worker="send"}', "0x10 1x80", "3x90"),
    case("RocketpyWorkerRestarts", 'rocketpy_worker_restarts_total{worker="send"}', RISES, "0x10 2x80"),
    case("RocketpyRestarts", "rocketpy_broker_start_time_seconds", "0x2 7x2 8x2 9x2 10x80", "0x2 7x2 8x2 9x80"),
    case("RocketpyBrokerFault", 'rocketpy_broker_faults_total{place="admin"}', "_x10 1x80", "3x90"),
    case("RocketpyBrokerFault", 'rocketpy_broker_faults_total{place="admin"}', "3x12 4x80", "3x2 4x90"),
    case("RocketpyNamesrvFault", 'rocketpy_namesrv_faults_total{place="scan"}', "_x10 1x80", "3x90"),
    case("RocketpyNamesrvFault", 'rocketpy_namesrv_faults_total{place="scan"}', "3x12 4x80", "3x2 4x90"),
    case("RocketpyConnectionsRefused", "rocketpy_remoting_connections_refused_total", RISES, STAYS),
    case("RocketpyUnreadAnswers", "rocketpy_remoting_unsent_closed_total", RISES, STAYS),
    case("RocketpyUnreadAnswers", "rocketpy_remoting_pinning_closed_total", RISES, STAYS),
    case("RocketpyClockSkew", "rocketpy_clock_seconds", "6+60x90", "5+60x90"),
    case("RocketpyClockSkew", "rocketpy_clock_seconds", "-6+60x90", "-5+60x90"),
    case("RocketpySendFailures", 'rocketpy_send_failures_total{worker="send"}', RISES, STAYS),
    case("RocketpySendFailures", 'rocketpy_send_failures_total{worker="manager"}', RISES, STAYS),
    case("RocketpyBusyReplies", 'rocketpy_worker_busy_replies_total{worker="send"}', RISES, STAYS),
    case("RocketpyConsumerLag", 'rocketpy_consumer_lag_messages{group="g",topic="t"}', "100001x90", "100000x90"),
    case("RocketpyBacklogAlarm", "rocketpy_consumer_backlog_alarms", "1x90", "0x90"),
    case("RocketpyDifferingSubscriptions", 'rocketpy_group_differing_subscriptions{group="g"}', "2x90", "1x90"),
    case("RocketpyOpenTransaction", "rocketpy_transaction_oldest_open_seconds", "601x90", "600x90"),
    case("RocketpyTransactionsDiscarded", "rocketpy_transaction_discards_total", RISES, STAYS),
    case("RocketpyTimerDeadLetters", "rocketpy_timer_dead_letters_total", RISES, STAYS),
    case("RocketpyDiskFilling", "rocketpy_store_disk_used_ratio", "0.86x90", "0.85x90"),
    Case(
        "RocketpyDispatchBehind",
        {PUBLISHED: "3000000001x90", "rocketpy_store_dispatched_offset_bytes": "2000000000x90"},
        {PUBLISHED: "3000000000x90", "rocketpy_store_dispatched_offset_bytes": "2000000000x90"},
    ),
    Case(
        "RocketpyFlushBehind",
        {PUBLISHED: "3000000001x90", "rocketpy_store_durable_offset_bytes": "2000000000x90"},
        {PUBLISHED: "3000000000x90", "rocketpy_store_durable_offset_bytes": "2000000000x90"},
    ),
    case("RocketpyLogUnreadable", "rocketpy_pull_log_unreadable_total", RISES, STAYS),
    case("RocketpySlaveLost", SLAVES, "1x10 0x80", "0x90"),
    case("RocketpySlaveLost", SLAVES, "1x10 0x80", "2x10 1x80"),
    Case(  # a master that follows another one now
        "RocketpySlaveLost",
        {SLAVES: "1x10 0x80"},
        {SLAVES: "1x10 0x80", 'rocketpy_ha_following{state="following"}': "_x11 1x80"},
    ),
    case("RocketpySlaveLag", 'rocketpy_ha_lag_seconds{slave="s"}', "61x90", "60x90"),
    case("RocketpySlaveLag", 'rocketpy_ha_lag_bytes{slave="s"}', "1000000001x90", "1000000000x90"),
    case("RocketpySlaveNotFollowing", 'rocketpy_ha_following{state="following"}', "1x9 0x80", "1x11 0x80"),
    case("RocketpyLogDiverged", "rocketpy_ha_diverged_files", "1x90", "0x90"),
    case("RocketpyBadRecords", "rocketpy_ha_bad_records_total", RISES, STAYS),
    Case("RocketpyNoMaster", GROUP | {MEMBER: "0x90", OTHER: "0x90"}, GROUP | {MEMBER: "0x90", OTHER: "1x90"}),
    case("RocketpyLoneMaster", "rocketpy_ha_in_sync_members", "2x9 1x80", "2x11 1x80"),
    case("RocketpyLeaseLost", "rocketpy_ha_lease_remaining_seconds", "0x90", "3x90"),
    case("RocketpyRoleChanges", "rocketpy_ha_role_changes_total", RISES, "0x10 6x80"),
    case("RocketpyMemberHalted", 'rocketpy_ha_member{state="halted"}', "1x90", "0x90"),
    case("RocketpyMemberFault", "rocketpy_ha_faulty_members", "1x90", "0x90"),
    case("RocketpyEtcd", "rocketpy_ha_etcd_alarm", "1x90", "0x90"),
    case("RocketpyEtcd", "rocketpy_ha_etcd_database_bytes", "1600000000x90", "1400000000x90"),
    Case(
        "RocketpyRegistrationStale",
        {CLOCK: "0+60x90", REGISTERED: "700x90"},
        {CLOCK: "0+60x90", REGISTERED: "790x90"},
    ),
    Case(  # the clock of the machine is two minutes behind
        "RocketpyRegistrationStale",
        {CLOCK: "-120+60x90", REGISTERED: "590x90"},
        {CLOCK: "-120+60x90", REGISTERED: "700x90"},
    ),
    case("RocketpyCertificateExpires", "rocketpy_tls_certificate_not_after_seconds", f"{13 * DAY_S}x90", "0x90"),
    case(
        "RocketpyCertificateExpires",
        "rocketpy_namesrv_tls_certificate_not_after_seconds",
        f"{13 * DAY_S}x90",
        f"{15 * DAY_S}x90",
    ),
    case("RocketpyCertificateNotLoaded", "rocketpy_tls_reloads_failed_total", RISES, STAYS),
    case("RocketpyCertificateNotLoaded", 'rocketpy_namesrv_tls_reloads_total{result="failed"}', RISES, STAYS),
    case("RocketpyTlsRefused", "rocketpy_tls_handshakes_failed_total", "0+20x90", "0+9x90"),
    case("RocketpyTlsRefused", "rocketpy_tls_handshakes_refused_total", RISES, STAYS),
    case("RocketpyTlsRefused", 'rocketpy_namesrv_tls_refused_total{reason="plain"}', "0+20x90", "0+9x90"),
)


def unit_tests(cases: tuple[Case, ...]) -> Iterator[dict[str, Any]]:
    """Yield a test of `promtool test rules` for each case, and one for the series beside it."""
    for each in cases:
        for is_firing, series in ((True, each.fires), (False, each.is_quiet)):
            yield {
                "name": f"{each.alert}: {'fires' if is_firing else 'is quiet'} at {series}",
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertname="{each.alert}",alertstate="firing"}})',
                        "eval_time": LATER,
                        "exp_samples": [{"labels": "{}", "value": 1}] if is_firing else [],
                    }
                ],
            }


def test_each_alert_fires_at_its_series_alone(tmp_path: Path) -> None:
    """JSON is YAML."""
    assert {each.alert for each in CASES} == {rule["alert"] for rule in alerts()}
    (tmp_path / "tests.yml").write_text(
        json.dumps(
            {
                "rule_files": [str(RULES)],
                "evaluation_interval": "30s",
                "tests": list(unit_tests(CASES)),
            }
        )
    )
    promtool("test", "rules", tmp_path / "tests.yml")


def test_each_alert_fires_in_a_running_prometheus(tmp_path: Path) -> None:
    """It scrapes the series of promtool's tests. An alert that names no instance counts for each of its cases."""
    (port,) = free_ports(1)
    exporter, silent = Exporter(), dict(enumerate(CASES))
    for number, each in silent.items():
        exporter.add(str(number), each.fires)

    def all_have_fired() -> bool:
        firing = prometheus.all_firing()
        for number, each in list(silent.items()):
            own = [labels for labels in firing if labels["alertname"] == each.alert]
            if any(labels.get("instance", f"{number}-").startswith(f"{number}-") for labels in own):
                del silent[number]
        return not silent

    with exporter.serving() as jobs:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        }
        with (
            prometheus_of(tmp_path, port, config, minutes_as_seconds(RULES.read_text())) as prometheus,
            contextlib.suppress(AssertionError),  # the next line names the alerts
        ):
            wait_until(all_have_fired, "all alerts", FIRES_S, pause_s=0.2)
    assert list(silent.values()) == []


def test_the_rules_of_the_running_prometheus_are_the_shipped_ones_but_for_durations() -> None:
    def durations_ms(text: str) -> list[float]:
        return [int(count) * UNITS_MS[unit] for count, unit in DURATION.findall(text)]

    shipped = RULES.read_text()
    short = minutes_as_seconds(shipped)
    assert DURATION.sub("", short) == DURATION.sub("", shipped)
    assert durations_ms(short) == [each / 60 for each in durations_ms(shipped)] != []


def test_promtool_takes_the_files() -> None:
    assert "SUCCESS" in promtool("check", "config", FILES / "prometheus.yml")
    promtool("check", "rules", "--lint=all", "--lint-fatal", RULES)


def test_every_metric_of_the_rules_exists() -> None:
    names = set(re.findall(r"\brocketpy_\w+", " ".join(str(rule["expr"]) for rule in alerts())))
    page = (ROOT / "docs" / "run" / "metrics.md").read_text()
    assert len(names) > 30
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []
