"""Access control of the official broker 4.9.7, which our rules repeat and our tools and clients use.

ROCKETPY_ACL_MATRIX=all sends every combination of accounts, codes and resources; otherwise it is a sample.
"""

from __future__ import annotations

import itertools
import os
import random
import re
import shutil
import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from rocketpy.acl.addresses import AddressInvalid, AddressPattern
from rocketpy.acl.files import AclFiles
from rocketpy.acl.permissions import shown
from rocketpy.acl.resources import REFERENCE, SIGNATURE_ONLY
from rocketpy.acl.validator import EXCEPTION, AccessValidator
from rocketpy.client import Message, ProducerOptions, PullOptions
from rocketpy.client.sync import Producer, PullConsumer
from rocketpy.errors import BrokerError
from rocketpy.remoting.command import RemotingCommand
from rocketpy.remoting.headers.acl import CreateAccessConfigRequestHeader
from rocketpy.remoting.signature import Credentials
from tests.support.broker import running_broker
from tests.support.wire import TIMEOUT_S, Wire

from . import acl_matrix, toolchain
from .acl_matrix import Case
from .acl_patterns import Sample, samples
from .admin_tools import Printed, python_tool
from .brokers import AnyBroker, asking, wait_until
from .java_broker import running_java_broker, write_logback
from .mqadmin import NewMqAdmin

SEED = 4
PATTERNS = 20_000
SAMPLE = None if os.environ.get("ROCKETPY_ACL_MATRIX") == "all" else 20_000
WINDOW = 128  # requests at once on a connection
PATIENT = {"brokerFastFailureEnable": "false"}  # on a busy machine some of the requests wait longer than 200 ms


@attrs.frozen
class Guarded:
    """A broker with access control, and its home: an official one, or ours."""

    broker: AnyBroker
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
    with running_java_broker(PATIENT | {"aclEnable": "true"}, flags=[f"-Drocketmq.home.dir={home}"]) as broker:
        yield Guarded(broker, home)


@pytest.fixture(scope="module", params=[False, True], ids=["as-the-reference", "strict"])
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A broker of ours with the same accounts."""
    home = tmp_path_factory.mktemp("own")
    (home / "conf").mkdir()
    (home / "conf" / "plain_acl.yml").write_bytes(acl_matrix.file_of_accounts())
    settings = {"aclEnable": "true", "rocketmqHome": str(home), "aclStrict": str(request.param).lower()}
    settings["failedAuthenticationsMax"] = "0"  # an address makes more wrong requests than that
    with running_broker(PATIENT | settings) as broker:
        yield Guarded(broker, home)


@pytest.fixture(scope="module")
def own_validator(own: Guarded) -> AccessValidator:
    is_strict = own.broker.settings["aclStrict"] == "true"
    return AccessValidator(AclFiles(own.home, now_ms=lambda: 0).load(), strict=is_strict)


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
    if validator.strict or not refusal.text.startswith("No default"):
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
    assert min(decisions["allowed"], decisions["No default"]) > 1000


def test_roles_are_those_of_the_reference(guarded: Guarded, validator: AccessValidator) -> None:
    decisions = compare(guarded, validator, acl_matrix.roles(random.Random(SEED)))
    assert decisions["Need admin"] > 10 and decisions["allowed"] > 100


def test_identities_are_those_of_the_reference(guarded: Guarded, validator: AccessValidator) -> None:
    decisions = compare(guarded, validator, acl_matrix.identities(random.Random(SEED)))
    assert min(decisions[text] for text in ("allowed", "No accessKey", "No acl", "Check signature")) > 50


def test_our_broker_decides_by_its_rules(own: Guarded, own_validator: AccessValidator) -> None:
    """Return the rules of the reference, which are compared with the official broker above, or our stricter ones."""
    rng = random.Random(SEED)
    for cases in (acl_matrix.permissions(SAMPLE, rng), acl_matrix.roles(rng), acl_matrix.identities(rng)):
        decisions = compare(own, own_validator, cases)
        assert decisions["allowed"] > 50


# --- white lists ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java_answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Sequence[Sample]], list[str]]:
    """Ask the official class about each sample (acl_java/Patterns.java)."""
    classes, library = tmp_path_factory.mktemp("classes"), f"{toolchain.server_directory()}/lib/*"
    source = Path(__file__).parent / "acl_java" / "Patterns.java"
    subprocess.run(["javac", "-cp", library, "-d", classes, source], check=True)

    def ask(asked: Sequence[Sample]) -> list[str]:
        lines = "".join("\t".join((one.pattern, *one.hosts)) + "\n" for one in asked)
        words = ["java", "-cp", f"{library}:{classes}", "Patterns"]
        done = subprocess.run(words, input=lines, capture_output=True, text=True, encoding="utf-8", check=True)
        return done.stdout.splitlines()

    return ask


def test_patterns_name_the_addresses_that_they_name_in_the_reference(
    java_answers: Callable[[Sequence[Sample]], list[str]],
) -> None:
    asked = list(samples(PATTERNS, random.Random(SEED)))
    outcomes: Counter[str] = Counter()
    for sample, answer in zip(asked, java_answers(asked), strict=True):
        is_loaded = set(answer) <= set("01E")
        try:
            pattern = AddressPattern.of(sample.pattern)
        except AddressInvalid as refusal:
            assert not is_loaded or "1" not in answer or "E" in answer, f"{sample} is of use in the reference"
            kind, _, text = answer.partition("\t")
            assert kind != "AclException" or text.strip() == str(refusal).strip(), sample
            outcomes["refused, but loaded" if is_loaded else "refused"] += 1
        else:
            assert answer == "".join("01"[pattern.has(host)] for host in sample.hosts), sample
            outcomes["equal"] += 1
            outcomes["named"] += answer.count("1")
    assert min(outcomes.values()) > PATTERNS // 100


# --- our tool and our client ------------------------------------------------------------------------------------------


@pytest.fixture
def as_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Let our mqadmin and the official one use this account, by their conf/tools.yml."""

    def use(access_key: str, secret_key: str) -> None:
        monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
        for home in (tmp_path, tmp_path / "mqadmin"):
            (home / "conf").mkdir(parents=True, exist_ok=True)
            write_logback(home)
            (home / "conf" / "tools.yml").write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")

    return use


DENIED, NAMED, ADMINISTRATOR = "account-0000", "account-0003", "account-0256"  # of acl_matrix.accounts


def ours(guarded: Guarded, *words: str, succeeds: bool = True) -> Printed:
    """What our mqadmin prints. The official broker writes its file in place, and may read a part of it meanwhile: then
    it does not know the account until it looks at the file again, 5 s later."""
    answers: list[Printed] = []

    def is_known() -> bool:
        answers.append(python_tool([words[0], "-n", guarded.broker.namesrv, *words[1:]]))
        return "No PlainAccessConfig" not in answers[-1].errors

    wait_until(is_known, "the account")
    printed = answers[-1]
    assert printed.succeeded == succeeds, printed
    return printed


def changing(text: str) -> str:
    """`text` without the times of changes."""
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|(?<=timestamp: )\d+|\d{13}", "#", text)


def test_our_tool_administers_the_official_broker(
    guarded: Guarded, as_account: Callable[[str, str], None], new_mqadmin: NewMqAdmin, tmp_path: Path
) -> None:
    """The same requests change files of ours: the same text comes of it."""
    as_account(ADMINISTRATOR, acl_matrix.SECRET)
    copied = tmp_path / "copy"
    shutil.copytree(guarded.home / "conf", copied / "conf")
    files = AclFiles(copied, now_ms=lambda: 0)
    files.load()
    address = guarded.broker.address
    fields = {"accessKey": "new-account", "secretKey": "12345678", "topicPerms": "a=PUB,b= SUB ", "admin": "false"}
    ours(guarded, "updateAclConfig", "-b", address, "-a", "new-account", "-s", "12345678", "-t", "a=PUB,b= SUB ")
    files.update_account(CreateAccessConfigRequestHeader.from_ext_fields(fields))
    ours(guarded, "updateAclConfig", "-c", "DefaultCluster", "-a", DENIED, "-s", acl_matrix.SECRET, "-u", "DENY")
    fields = {"accessKey": DENIED, "secretKey": acl_matrix.SECRET, "defaultGroupPerm": "DENY"}
    files.update_account(CreateAccessConfigRequestHeader.from_ext_fields(fields))
    written = (guarded.home / "conf" / "plain_acl.yml").read_text()
    assert changing((copied / "conf" / "plain_acl.yml").read_text()) == changing(written)
    for words in (("clusterAclConfigVersion", "-b", address), ("getAclConfig", "-c", "DefaultCluster")):
        assert ours(guarded, *words).output.split() == new_mqadmin(guarded.broker, *words).split()
    assert "new-account" in ours(guarded, "getAccessConfigSubCommand", "-b", address).output
    for account in ("new-account", "new-account"):
        succeeds = "new-account" in (guarded.home / "conf" / "plain_acl.yml").read_text()
        printed = ours(guarded, "deleteAclConfig", "-b", address, "-a", account, succeeds=succeeds)
    assert "The accesskey[new-account] corresponding to accessConfig has been deleted failed." in printed.errors
    ours(guarded, "updateGlobalWhiteAddr", "-b", address, "-g", "10.1.1.1", "-p", f"{guarded.home}/conf/plain_acl.yml")


def test_the_official_tool_administers_our_broker(
    own: Guarded, as_account: Callable[[str, str], None], new_mqadmin: NewMqAdmin
) -> None:
    address = own.broker.address
    as_account(ADMINISTRATOR, acl_matrix.SECRET)
    new_mqadmin(own.broker, "updateTopic", "-b", address, "-t", "made-by-mqadmin")
    assert "bootTimestamp" in new_mqadmin(own.broker, "brokerStatus", "-b", address)
    as_account(DENIED, acl_matrix.SECRET)
    with pytest.raises(AssertionError, match=f"Need admin permission for request code=17, but accessKey={DENIED} is"):
        new_mqadmin(own.broker, "updateTopic", "-b", address, "-t", "not-made")


def test_our_tool_and_client_are_refused(guarded: Guarded, as_account: Callable[[str, str], None]) -> None:
    address = guarded.broker.address
    as_account(ADMINISTRATOR, "another-secret")
    printed = ours(guarded, "brokerStatus", "-b", address, succeeds=False)
    assert f"Check signature failed for accessKey={ADMINISTRATOR}" in printed.errors
    as_account(DENIED, acl_matrix.SECRET)
    printed = ours(guarded, "updateTopic", "-b", address, "-t", "made", succeeds=False)
    assert f"Need admin permission for request code=17, but accessKey={DENIED} is not" in printed.errors


def test_our_client_sends_and_reads_with_an_account(guarded: Guarded, as_account: Callable[[str, str], None]) -> None:
    as_account(ADMINISTRATOR, acl_matrix.SECRET)
    ours(guarded, "updateTopic", "-b", guarded.broker.address, "-t", "both", "-r", "1", "-w", "1")
    ours(guarded, "updateSubGroup", "-b", guarded.broker.address, "-g", "both")
    with asking(guarded.broker.namesrv_port) as namesrv:
        wait_until(lambda: namesrv.has_route("both"), "the topic")

    def settings(account: str, secret: str = acl_matrix.SECRET) -> dict[str, Any]:
        return {"name_servers": guarded.broker.namesrv, "credentials": Credentials(account, secret)}

    with Producer("p", ProducerOptions(**settings(NAMED))) as producer:
        producer.send(Message("both", b"signed"))
    with PullConsumer("both", PullOptions(**settings(NAMED))) as consumer:
        consumer.subscribe("both")
        assert [message.body for message in consumer.poll(timeout=30)] == [b"signed"]
    refused = {NAMED: "another-secret", DENIED: acl_matrix.SECRET}
    for account, secret in refused.items():
        text = "Check signature failed" if secret == "another-secret" else "No default permission for topic:both"
        with (
            Producer("p", ProducerOptions(**settings(account, secret))) as producer,
            pytest.raises(BrokerError, match=text),
        ):
            producer.send(Message("both", b"refused"))
