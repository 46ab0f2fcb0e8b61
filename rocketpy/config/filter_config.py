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
        "Accept subscriptions by SQL92 expressions over the properties of messages. Off: they are refused.",
        important=True,
    )
    enable_calc_filter_bit_map: bool = setting(
        False,
        "enableCalcFilterBitMap",
        "Evaluate the SQL92 subscriptions of a topic once for each new message, and keep the result as filter bits, so "
        "that pulls need not look at each message. Needs enableConsumeQueueExt. Worth it when messages are pulled by "
        "several groups, or few of them match.",
    )
    expect_consumer_num_use_filter: int = setting(
        32,
        "expectConsumerNumUseFilter",
        "How many groups filter one topic by SQL92; with maxErrorRateOfBloomFilter it is the number of filter bits "
        "(112). When it changes, the filter bits of stored messages are no longer used.",
        at_least=1,
        at_most=1_000,
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "maxErrorRateOfBloomFilter",
        "In how many percent of the cases filter bits may say that a message could match though it does not.",
        unit="percent",
        at_least=1,
        at_most=99,
    )
    filter_support_retry: bool = setting(
        False,
        "filterSupportRetry",
        "Filter the messages of a group's retry topic by its SQL92 subscription to the topic that they were first in.",
        effect=Effect.AT_RESTART,
    )
    filter_data_clean_time_span: int = setting(
        86_400_000,
        "filterDataCleanTimeSpan",
        "How long the SQL92 subscription of a group that has left is kept, with its filter bits.",
        unit="ms",
        effect=Effect.AT_ONCE,
        at_most=LONG_MAX,
    )
