"""A slave that an operator wants as the next master prepares for it, for as long as the master tries to hand over."""

from __future__ import annotations

import attrs

from .records import SwitchRequest
from .requests import Report, View

SWITCH_OVER_S = 3.0


@attrs.define
class NextMaster:
    """Level-triggered, like all rules; `since_s`: when the present request was seen first."""

    _request: SwitchRequest | None = None
    _since_s: float = 0.0

    def is_wanted(self, view: View | None, report: Report | None, member: str, now_s: float) -> bool:
        """Return True if the master of the present epoch was asked a moment ago to hand over to `member`. The request
        stays in etcd: after `until_ms` it means nothing, also to a coordinator that has just started."""
        request, known = (view.switch, view.state) if view is not None else (None, None)
        if request != self._request:
            self._request, self._since_s = request, now_s
        if request is None or known is None or request.to != member or request.from_epoch != known.epoch:
            return False
        if report is None or report.wall_ms >= request.until_ms:
            return False
        return known.master != member and now_s < self._since_s + SWITCH_OVER_S
