"""What tests of real groups need of the machine. Root, networks and disks may be missing anywhere; etcd not in CI."""

from __future__ import annotations

import pytest

from . import clocks, disks, network

needs_network = pytest.mark.skipif(not network.is_possible(), reason=network.MISSING)
needs_disks = pytest.mark.skipif(not disks.is_possible(), reason=disks.MISSING)
needs_compiler = pytest.mark.skipif(clocks.compiler() is None, reason=clocks.MISSING)
