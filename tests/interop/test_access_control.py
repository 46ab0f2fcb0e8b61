"""Access control of the official broker 4.9.7, which our rules repeat and our tools and clients use.

ROCKETPY_ACL_MATRIX=all sends every combination of accounts, codes and resources; otherwise it is a sample.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from rocketpy.acl.files import AclFiles
from rocketpy.acl.permissions import shown
from rocketpy.acl.resources import REFERENCE, SIGNATURE_ONLY
from rocketpy.acl.validator import EXCEPTION, AccessValidator
from rocketpy.remoting.command import RemotingCommand
from tests.support.wire import TIMEOUT_S, Wire

from . import acl_matrix
from .acl_matrix import Case
from .java_broker import JavaBroker, running_java_broker, write_logback

SEED = 4
SAMPLE = None if os.environ.get("ROCKETPY_ACL_MATRIX") == "all" else 20_000
WINDOW = 128  # requests at once on a connection


@attrs.frozen
class Guarded:
    """An official broker with access control, and its home."""

    broker: JavaBroker
    home: Path

    def answers(self, cases: Iterable[Case]) -> Iterator[tuple[Case, RemotingCommand]]:
        """Each request with its answer. Requests of one address that follow each other share a connection."""
        for host, of_host in itertools.groupby(cases, lambda case: case.host):
            sock = socket.create_connection(("127.0.0.1", self.broker.port), TIMEOUT_S, source_address=(host, 0))
            with Wire(sock) as wire:
                while window := dict(enumerate(itertools.islice(of_host, WINDOW))):
                    yield from self._served(wire, window)

    def _served(self, wire: Wire, cases: dict[int, Case]) -> Iterator[tuple[Case, RemotingCommand]]:
        for opaque, case in cases.items():
            case.request.opaque = opaque
        wire.sock.sendall(b"".join(case.request.encode() for case in cases.values()))
        while cases:
            answer = wire.read()
            if answer.is_response:
                yield cases.pop(answer.opaque), answer


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("home")
    write_logback(home)
    (home / "conf" / "plain_acl.yml").write_bytes(acl_matrix.file_of_accounts())
    with running_java_broker({"aclEnable": "true"}, flags=[f"-Drocketmq.home.dir={home}"]) as broker:
        yield Guarded(broker, home)


@pytest.fixture(scope="module")
def validator(guarded: Guarded) -> AccessValidator:
    return AccessValidator(AclFiles(guarded.home, now_ms=lambda: 0).load(), strict=False)


def refusal_of(answer: RemotingCommand) -> str | None:
    """The text of a refusal; None: the broker tried to serve the request."""
    remark = answer.remark or ""
    if answer.code != 1 or not remark.startswith(EXCEPTION):
        return None
    return re.sub(r", org\.apache\.[\w.]+\(\w+\.java:\d+\)$", "", remark.removeprefix(EXCEPTION))


def expected(validator: AccessValidator, case: Case) -> set[str | None]:
    """The texts that the refusal may have: which of several denied resources is named depends on a hash table."""
    refusal = validator.check(case.request, case.host)
    if refusal is None:
        return {None}
    if not refusal.text.startswith("No default"):
        return {refusal.text}
    account = validator.accounts.by_key[case.request.ext_field("AccessKey") or ""]
    needs = REFERENCE.get(case.request.code, SIGNATURE_ONLY).needs(case.request)
    denied = [name for name, needed in needs if name is not None and not account.may(name, needed)]
    return {f"No default permission for {shown(name)}" for name in denied}


def compare(guarded: Guarded, validator: AccessValidator, cases: Iterable[Case]) -> Counter[str]:
    """Ask both; the number of requests by decision."""
    decisions: Counter[str] = Counter()
    for case, answer in guarded.answers(cases):
        found = refusal_of(answer)
        assert found in expected(validator, case), f"{case}\n{answer}"
        decisions["allowed" if found is None else found.split(" ", 2)[0] + " " + found.split(" ", 2)[1]] += 1
    return decisions


def test_permissions_are_those_of_the_reference(guarded: Guarded, validator: AccessValidator) -> None:
    """Holds: trap, access control checks few codes.
    Holds: trap, administrators with resources in access control."""
    decisions = compare(guarded, validator, acl_matrix.permissions(SAMPLE, random.Random(SEED)))
    print(decisions)
    assert min(decisions["allowed"], decisions["No default"]) > 1000


def test_roles_are_those_of_the_reference(guarded: Guarded, validator: AccessValidator) -> None:
    decisions = compare(guarded, validator, acl_matrix.roles(random.Random(SEED)))
    print(decisions)
    assert decisions["Need admin"] > 10 and decisions["allowed"] > 100


def test_identities_are_those_of_the_reference(guarded: Guarded, validator: AccessValidator) -> None:
    decisions = compare(guarded, validator, acl_matrix.identities(random.Random(SEED)))
    print(decisions)
    assert min(decisions[text] for text in ("allowed", "No accessKey", "No acl", "Check signature")) > 50
