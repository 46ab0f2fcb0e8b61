"""What `rocketpy doctor` has found.

Short: doctor.py loads replication_checks.py only for a broker that replicates, and both make findings.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Finding:
    """One line of the report; `remedy` is empty where all is well."""

    subject: str
    found: str
    remedy: str = ""
    is_fatal: bool = False
