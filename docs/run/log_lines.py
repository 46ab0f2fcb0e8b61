"""`python docs/run/log_lines.py` prints docs/run/log-lines.md: the log lines of the servers, and their remedies.

A new line at WARNING or above needs an entry in REMEDIES: fixed words of it, with N, NAME, ADDRESS or ... for its
values. Words that no line begins with explain a reason that lines end with.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs

PACKAGE = Path(__file__).parents[2] / "rocketpy"
SERVERS = (
    "aio",
    "broker",
    "console",
    "failover",
    "namesrv",
    "processes",
    "reactor",
    "replication",
    "store",
    "tls",
    "transport",
)
MORE = ("acl", "faults.py", "metrics", "remoting")
LEVELS = {
    "info": "info",
    "warning": "warning",
    "_warn": "warning",
    "error": "error",
    "exception": "error",
    "critical": "error",
}
PLACES = r"\b(?:N|NAME|ADDRESS)\b"  # of values in REMEDIES
LEAST = 12  # characters of a text that says something without its values
REMEDIES = """
## Machine and disk
the service manager
    the line gives the remedy; of `does not hear`: `NotifyAccess=all` in the unit
the disk of NAME is full
    [free space](backup-and-repair.md#full-disk)
store: NAME: NAME; trying again | cannot save NAME | cannot write NAME | cannot use NAME | cannot flush NAME |
cannot create the next | cannot delete NAME | cannot check the free | cannot read or file timers |
cannot store the delayed message
    retried, nothing lost; check space, permissions, `LimitNOFILE`, kernel log
key-value table NAME cannot be changed
    the name server serves, and refuses changes of keys; `chown` the directory (of a container: the volume), or correct
    `kvConfigPath`
refusing messages until
    a sync of the log failed. Repair the disk, restart. Until then sends are refused
could not be flushed | consume queues are incomplete | had write errors
    a sync of queues or index failed. Repair the disk, restart; the broker rebuilds them. Until then no log file is
    deleted ([ADR 55](../adr/0055-syncs-write-what-changed-and-a-failure-is-remembered.md))
the CommitLog is damaged | cannot read the consume queue | skipped the delayed message | skipped a delayed message |
discarded the transaction at offset | and no usable .bak
    [damaged files](backup-and-repair.md#damaged-files)
paused for N s | this process was paused
    frozen, or short of CPU; look at the machine
messageDelayLevel has N levels now
    write the levels that it lacks at its end again, restart
cannot start worker NAME: fork
    raise `ulimit -u`, pids.max, memory.max
worker NAME ...; restarting | process NAME ...; restarting | worker NAME failed | process NAME failed
    a process ended (killed, out of memory, or a fault to report)
worker NAME cannot start | process NAME cannot start
    the line says why
worker NAME ..., after ...: stopping
    more than 10 restarts in a minute; the lines above say why
crashed while it served | failed: NAME | cannot deliver messages of | cannot look for the last delivery |
an unexpected fault | closed the connection NAME after | ignored a ring message | ignored a change |
cannot restore consumer group | cannot restore the client of | cannot store NAME: |
a function that the event loop called
    a fault of rocketpy, which goes on; report it with the lines around
has not sent a heartbeat | coordinator has made no turn | did not stop in time | did not end in time
    a process hung and is replaced; repeated: slow disk, or report it
the system clock was set back
    repair the time service; delays stay right
the store is in use
    stop the other broker
refused N connections: the limit of open files
    raise `LimitNOFILE`
port N is in use
    set `metricsPort`
not honoured | reached from this machine only | configuration: NAME
    correct the property named

## Clients and groups
access control refused
    a client without permission, or a stranger: the line has its address and account
account NAME of NAME has no effect | accounts are kept as they were | there is no account
    correct the file named; the broker reads it again by itself
the changed credentials cannot be used
    correct the file of credentials; the broker reads it again by itself
could not push | client NAME at ADDRESS refused | could not store
    the client that asked gets no answer; it is gone, or see the code
closed the connection NAME: no answer
    name server or master hangs, or the network
closed N connections of NAME
    the line goes on with a reason that follows here
raise connectionsMax
    the limit of connections is reached; raise it, or open files (`ulimit -Hn`)
refused N connections: their address | their address | failed authentications
    a stranger, a wrong key, or many clients of one [address](access-control.md#limits)
incomplete requests took | unread responses took
    raise the property named if the clients are yours; else look for strangers
they did not read responses
    slow consumers; raise `fileReservedTime`
address is in proxyProtocolFrom | closed the connection of proxy
    send a PROXY header (haproxy `send-proxy-v2`, stunnel `protocol = proxy`)
shared memory is too small | a client or group of
    raise `sharedMemoryMax`, or for queue locks lower `queueLocksMax`
its members subscribe differently
    [alert](monitor.md#rocketpydifferingsubscriptions)
is behind in topic
    [alert](monitor.md#rocketpybacklogalarm)
switched off consumer group
    `mqadmin updateSubGroup -c CLUSTER -g GROUP -s true`
dropped N filters
    `expectConsumerNumUseFilter` or `maxErrorRateOfBloomFilter` was changed; consumers register their filters again at
    their next heartbeat
cannot filter topic
    the line says why (`enablePropertyFilter`, expression, too many filters)
the committed offset of topic
    a reset, or two consumers of a queue
dropped the offset | offset N of topic
    the log lost its end, and the offset is beyond it; the line says where the group goes on
ignored the offsets of key
    correct `config/consumerOffset.json`
cannot ask about the transaction
    [alert](monitor.md#rocketpyopentransaction)
discarded the transaction at log offset
    [TRANS_CHECK_MAX_TIME_TOPIC](monitor.md#messages-in-special-topics)
open transactions are lost
    raise `fileReservedTime`, repair `check`
transactions stay open
    end them, before new ones are refused
cannot deliver the delayed message
    [special topics](monitor.md#messages-in-special-topics)
the log names topic ..., and it is not | topics.json knows
    `mqadmin updateTopic` makes missing topics
messages have more than N KEYS
    use fewer keys

## Name servers
name server ADDRESS refused
    the remark says why. `would exceed KEY`: raise `brokersMax`, `topicsMax`, `topicRoutesMax` or `topicBrokersMax` of
    the name server; a name: correct the broker's file
cannot send ... to name server | cannot read the table | cannot connect to | cannot look up the name servers
    start it, or correct `namesrvAddr`
the route of name server | refused a master
    two masters, or a forged one; [close the port](automatic-failover.md#protect-etcd-and-the-routes)
removed broker | removed master
    look at that broker, unless you stopped it
cannot load the changed certificate
    repair the file; the certificate loaded before stays in use
replace it; it is loaded without a restart
    [replace the certificate](tls.md#replace-a-certificate)
refused the TLS connection | refused the plain connection
    [reasons](tls.md#reasons)

## Replication
refused a connection to the HA port | slaves are connected | it is no slave
    if yours, `haAddresses` and `haConnectionsMax`; else a stranger
refused slave | stopped following the master
    the line gives the reason. `version`: [upgrade](upgrade.md#upgrade). `diverged`, `longer`, `it reports`: [choose a
    log](replication.md#a-slave-whose-log-differs). `behind`, `it needs the log from`: empty the slave's store. Else
    correct the property. Restart the slave
replication: NAME
    the line says what happened and what to do; [replication](replication.md)
lost the end of the log | may have lost its end
    before a producer sends, stop the master and [promote the slave](replication.md#promote-a-slave), or empty the
    slave's store
cannot prove that it knows the secret
    remove `haSecretFile` for slaves of the reference
the master sent a damaged record
    if repeated, `rocketpy store verify` on the master
cannot follow the master | cannot copy a table | cannot take over topic
    retried; the line names the cause
would have to be kept in | the log differs from its master's
    move files out of `diverged`, restart
cut the log at | the log ends at N and differs | member NAME at
    read the bytes in `diverged`, then move them away
the log was to be cut at
    [choose a log](replication.md#a-slave-whose-log-differs)
cannot accept a slave
    the reason follows; open files: raise `LimitNOFILE`, else the slave tries again
closed slave
    network, or a hanging slave

## Automatic failover
failover: NAME is ..., was
    a change of role, with its reason. HALTED: [halted](automatic-failover.md#when-a-member-has-halted)
it could not renew its lease | failed: NAME: EtcdUnavailable
    etcd, or the network to it; tried again
members are in sync, min
    start the others; sends are refused
cannot serve as master | this store cannot serve epoch
    the line, or those above, say why; another member takes over
this member halts | the log cannot be cut at
    [halted](automatic-failover.md#when-a-member-has-halted)
that of the group counts
    correct `haMembers` or `minInSyncReplicas` in the file
is elected with a log
    the other broker named has more; keep its store, [send again](backup-and-repair.md#send-messages-again)
failover: etcd has | etcd was replaced
    [etcd](automatic-failover.md#etcd-is-lost-full-or-restored)

## Console
the NAME did not take a notice | dropped a notice for the NAME
    repair the webhook or mail server; the line has the notice
secret keys come without TLS
    give `--certificate` and `--key`, or put a proxy in front
refusing logins from
    somebody guesses secrets; or it is the proxy of all browsers: [name it by `--proxy`](console.md#let-others-in)
sessions are kept, the accounts cannot be read
    repair the file of `--accounts`

## Nothing to do
has a new incarnation | is not NAME any more | its epoch file no longer
    acknowledged messages may be missing in the store: it copies them before it may be elected
cannot restore the NAME of the previous
    clients send them again (queue locks: none is granted for up to a minute). `they did not fit`: raise
    `sharedMemoryMax`, or for queue locks lower `queueLocksMax`
the store was in use
    no queue lock is granted for the seconds named
lowered NAME to what the log had | lowered committed offsets | the log ends at N and has no record |
removed NAME, which named | the log was cut after | index file | the log names topic ...: restored |
name server ADDRESS accepted | shared memory has room again | can serve as master again | messages are not refused |
failover: etcd has no alarm any more
    rocketpy has repaired it, or the trouble is over
"""
INTRODUCTION = """\
# Log lines

Generated by `python docs/run/log_lines.py` (`make docs`); do not edit.

For operators: the lines of broker, name server and console, and their remedies. Search for fixed words of a line; `...`
stands for a value. Lines are warnings unless `ERROR` stands before them. Words in italics are a reason that lines end
with. [Client](../use/client.md#log-lines) and [Spark](../use/spark.md#log-lines) have their own.
"""
NOTHING_TO_DO = """
## Level INFO

These need nothing.
"""


@attrs.frozen(order=True)
class Line:
    """An event that a module logs: its text with %s for each value."""

    text: str
    level: str
    module: Path


@attrs.frozen
class Entry:
    """Fixed words of lines, and their remedy."""

    section: str
    words: tuple[str, ...]
    remedy: str


def entries() -> Iterator[Entry]:
    """Yield the entries of REMEDIES."""
    section, words = "", ""
    for paragraph in re.split(r"\n(?=\S)", re.sub(r"\n(?:    )+", "\n    ", REMEDIES.strip())):
        if paragraph.startswith("## "):
            section = paragraph[3:].strip()
            continue
        head, _, remedy = paragraph.partition("\n    ")
        words = f"{words} {head.strip()}".strip()
        if remedy:
            yield Entry(section, tuple(word.strip() for word in words.split(" | ")), " ".join(remedy.split()))
            words = ""


# --- the lines ---


def lines() -> list[Line]:
    """List the lines of the servers, each once."""
    paths = [path for name in (*SERVERS, *MORE) for path in sorted(PACKAGE.joinpath(name).rglob("*.py"))]
    paths += [PACKAGE / name for name in MORE if name.endswith(".py")]
    found = {line.text: line for path in paths for line in lines_of(path)}
    return sorted(found.values())


def lines_of(path: Path) -> Iterator[Line]:
    """Yield the lines that a module logs, those of supervisor and guardian included."""
    for call in ast.walk(tree_of(path)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        level = "warning" if ast.unparse(call.func) == "self.process.log" else LEVELS.get(call.func.attr)
        if level is not None:
            texts = (text for argument in call.args[:2] for text in texts_of(argument, path))
            yield from (Line(text, level, path) for text in texts if len(re.sub("%[.\\d]*[a-z]", "", text)) > LEAST)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def texts_of(node: ast.expr, module: Path) -> Iterator[str]:
    """Yield the strings that an argument may be; a value within one is shown as %s. Of a variable: each string that its
    function assigns to it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from texts_of(node.body, module)
        yield from texts_of(node.orelse, module)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (text + "%s" for text in texts_of(node.left, module))
    elif isinstance(node, ast.Name):
        for found in ast.walk(function_of(node, module)):
            if isinstance(found, ast.Assign) and ast.unparse(found.targets[0]) == node.id:
                yield from () if isinstance(found.value, ast.Name) else texts_of(found.value, module)


def function_of(node: ast.expr, module: Path) -> ast.AST:
    """Return the function around a name: the last one that begins before it."""
    functions = (each for each in ast.walk(tree_of(module)) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return max((each for each in functions if each.lineno < node.lineno), key=lambda each: each.lineno)


# --- which entry a line has ---


def pieces(words: str) -> list[str]:
    """Return the fixed texts of an entry's words."""
    parts = (piece.strip() for piece in re.split(rf"{PLACES}|\.\.\.|: ", words))
    return [piece for piece in parts if piece]


def begins(text: str, words: str) -> bool:
    """Return True if `words` are the beginning of `text`, or of what follows its first value (`group %s: `)."""
    lead = r"(?:failover: )?(?:(?:[a-z]+ ){0,3}%[.\w]+\W*){0,2}"
    return re.match(lead + ".*?".join(map(re.escape, pieces(words))), text) is not None


def entry_of(line: Line, known: list[Entry]) -> Entry | None:
    """Return the entry with the longest words that the line begins with."""
    matching = [(len(words), entry) for entry in known for words in entry.words if begins(line.text, words)]
    return max(matching, key=lambda pair: pair[0])[1] if matching else None


# --- the page ---


def page() -> str:
    """Return the whole page. A line at INFO has no remedy, even if it begins as a warning does."""
    known, found = list(entries()), lines()
    events = [line for line in found if line.level != "info"]
    entry_by_line = {line: entry_of(line, known) for line in events}
    parts, section = [INTRODUCTION], ""
    for entry in known:
        if entry.section != section:
            section = entry.section
            parts.append(f"\n## {section}\n\n| lines | remedy |\n|---|---|\n")
        cells = [f"{level_of(line)}`{shown(line.text)}`" for line in events if entry_by_line[line] is entry]
        reasons = (words for words in entry.words if not any(begins(line.text, words) for line in events))
        cells += [f"*{shown(re.sub(PLACES, '...', words))}*" for words in reasons]
        parts.append(f"| {'<br>'.join(dict.fromkeys(cells))} | {entry.remedy} |\n")
    rest = [line for line in found if line.level == "info"]
    return "".join([*parts, NOTHING_TO_DO, "\n", *(f"- `{shown(line.text)}`\n" for line in rest)])


def level_of(line: Line) -> str:
    """Return the mark of an error; warnings, the most, have none."""
    return "ERROR " if line.level == "error" else ""


def shown(text: str) -> str:
    """Return a text as the page shows it, within a table and within backquotes."""
    plain = re.sub(r"%(?:\(\w+\))?[-#.\d]*[a-z]", "...", text.replace("%%", "%"))
    return plain.replace("......", "...").replace("|", "\\|").replace("`", "'").strip()


if __name__ == "__main__":
    sys.stdout.write(page())
