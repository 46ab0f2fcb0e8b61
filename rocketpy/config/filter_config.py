"""The properties of BrokerConfig that are about SQL92 filters. Keys and defaults are the reference's (4.9)."""

from __future__ import annotations

import attrs

from .setting import LONG_MAX, Effect, setting


@attrs.frozen(kw_only=True)
class FilterConfig:
    """Part of BrokerConfig."""

    enable_property_filter: bool = setting(
        False,
        "enablePropertyFilter",
        "Accept SQL92 subscriptions. Off: they are refused.",
        important=True,
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        "enableCalcFilterBitMap",
        "Evaluate a topic's SQL92 subscriptions once per new message and keep the result as filter bits, so that "
        "pulls skip messages. Needs enableConsumeQueueExt. Worth it with several groups or few matches.",
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "expectConsumerNumUseFilter",
        "Groups that filter one topic by SQL92; with maxErrorRateOfBloomFilter it gives the number of filter bits "
        "(112). A change makes stored filter bits useless.",
        at_least=1,
        at_most=1_000,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "maxErrorRateOfBloomFilter",
        "Tolerated share of false matches of filter bits.",
        unit="percent",
        at_least=1,
        at_most=99,
    )
    filter_support_retry: bool = setting(
        False,
        "filterSupportRetry",
        "Filter a group's retry topic by its SQL92 subscription to the original topic.",
        effect=Effect.AT_RESTART,
    )
    filter_data_clean_time_span: int = setting(
        86_400_000,
        "filterDataCleanTimeSpan",
        "Time that the SQL92 subscription of a group that has left is kept, with its filter bits.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_most=LONG_MAX,
    )
