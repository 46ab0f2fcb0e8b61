"""The files of accounts of a server: read at the start, again when they change, and changed by requests.

    <home>/conf/plain_acl.yml                          the default file; new accounts go there
    <home>/conf/acl/ and below: *.yml, *.yaml          further files, but conf/acl/tools.yml

Of accounts with the same key in several files the first one counts, in the order of names, the default file last. A
start fails if a file cannot be read. Later a file that cannot be read, or has become empty, keeps the accounts that it
had; that is logged, counted, and shown by `failing` until the file is in order.

Reading takes milliseconds, seconds for the largest files: it belongs into a thread, one call at a time.
Source: RocketMQ 4.9 `PlainPermissionManager`, `AclFileWatchService`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from rocketpy.atomic_file import write_atomically
from rocketpy.codes import ResponseCode
from rocketpy.errors import ConfigError, RequestRefused, RocketError
from rocketpy.faults import printable
from rocketpy.logs import LogLimit, and_more
from rocketpy.remoting.bodies.acl import AclConfig, PlainAccessConfig
from rocketpy.remoting.bodies.topic import DataVersion
from rocketpy.remoting.fastjson import dump_text
from rocketpy.remoting.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)

from .accounts import Accounts
from .addresses import AddressPattern
from .document import FILE_BYTES_MAX, read_document, write_document
from .permissions import check_entry
from .plain_acl import (
    WHITE,
    AclFile,
    Document,
    check_keys,
    comma_list,
    parse_acl_file,
    put_account,
    put_version,
    remove_account,
)

logger = logging.getLogger(__name__)

POLL_INTERVAL_S = 5.0
FILES_MAX = 256
ALL_BYTES_MAX = 8 << 20  # of all files: some 50 000 accounts
DIRECTORY_DEPTH_MAX = 8
SUFFIXES = (".yml", ".yaml")
NEW_FILE_MODE = 0o600
_CODE = ResponseCode


@attrs.frozen
class _Stamp:
    """A file's state, by which a change is noticed."""

    modified_ns: int
    size: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> _Stamp:
        return cls(status.st_mtime_ns, status.st_size, status.st_ino)


class AclFiles:
    """The files of accounts of one server. Each method that may change accounts returns the new table.

    Args:
        now_ms: milliseconds since 1970, for versions of files.
    """

    def __init__(self, home: Path, *, now_ms: Callable[[], int], default: str = "conf/plain_acl.yml") -> None:
        home = home.absolute()
        self.directory = home / "conf" / "acl"
        self.default_file = home / default
        self.failing: dict[Path, str] = {}
        """Files whose content is not in effect, with the reason."""
        self.failures = 0  # readings that failed
        self._now_ms = now_ms
        self._stamps: dict[Path, _Stamp] = {}
        self._files: dict[Path, AclFile] = {}
        self._read_ms: dict[Path, int] = {}
        self._limit = LogLimit()
        self._is_loading = False

    # --- reading ------------------------------------------------------------------------------------------------------

    def load(self) -> Accounts:
        """Read all files, at the start.

        Raises:
            ConfigError: one of them cannot be read.
        """
        self._is_loading = True
        self._refresh()
        self._is_loading = False
        for reason in self.failing.values():
            raise ConfigError(reason)
        if not any(file.accounts for file in self._files.values()):
            logger.warning(
                "there is no account in %s and %s; only white addresses may send requests",
                self.default_file,
                self.directory,
            )
        return self.accounts

    def poll(self) -> Accounts | None:
        """Read the files that have changed. Returns: None: there are none."""
        return self.accounts if self._refresh() else None

    @property
    def accounts(self) -> Accounts:
        files = self._files.values()
        return Accounts.of(
            (account for file in files for account in file.accounts),
            (pattern for file in files for pattern in file.white_addresses),
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that were found at the last look, in the order in which they count."""
        return tuple(self._stamps)

    @property
    def are_whole(self) -> bool:
        """Return True if each file could be read and has content: one without may be in the middle of its change."""
        return not self.failing and not any(file.is_empty for file in self._files.values())

    def _refresh(self) -> bool:
        try:
            stamps = dict(self._scan())
        except (OSError, ConfigError) as error:
            self._failed(self.directory, error)
            return False
        self.failing.pop(self.directory, None)
        if stamps == self._stamps:
            return False
        files: dict[Path, AclFile] = {}
        for path, stamp in stamps.items():
            known = self._files.get(path)
            if stamp != self._stamps.get(path):
                known = self._read(path, known)
            if known is not None:
                files[path] = known
        self.failing = {path: reason for path, reason in self.failing.items() if path in stamps}
        self._stamps, self._files = stamps, files
        self._warn_of_duplicates()
        return True

    def _scan(self) -> Iterator[tuple[Path, _Stamp]]:
        """All files, in the order in which they count."""
        seen: set[tuple[int, int]] = set()
        total = 0
        for path in [*_below(self.directory, DIRECTORY_DEPTH_MAX, set()), self.default_file]:
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
                continue  # one file under two names is one file
            seen.add((status.st_dev, status.st_ino))
            total += status.st_size
            if len(seen) > FILES_MAX or total > ALL_BYTES_MAX:
                raise ConfigError(
                    f"more than {FILES_MAX} files or {ALL_BYTES_MAX} bytes of accounts", file=self.directory
                )
            yield path, _Stamp.of(status)

    def _read(self, path: Path, known: AclFile | None) -> AclFile | None:
        """The content of a file; the former one if it cannot be read."""
        try:
            file = parse_acl_file(_bytes(path), str(path))
        except (OSError, ConfigError) as error:
            self._failed(path, error)
            return known
        if file.is_empty and known is not None and not known.is_empty:
            self._failed(path, ConfigError("no content; write `accounts: []` to remove all accounts", file=path))
            return known
        self.failing.pop(path, None)
        self._read_ms[path] = self._now_ms()
        for warning in file.warnings:
            logger.warning("accounts: %s", printable(warning))
        logger.info("read %d accounts from %s", len(file.accounts), path)
        return file

    def _failed(self, path: Path, error: OSError | ConfigError) -> None:
        if isinstance(error, OSError):
            may = "; let the user of the server read it (chown)" if isinstance(error, PermissionError) else ""
            text = f"cannot be read: {error.strerror}{may}"
            error = ConfigError(text, file=error.filename or path, key="aclEnable")
        self.failures += 1
        self.failing[path] = str(error)
        told = 0 if self._is_loading else self._limit.take()  # the end of the start says it
        if told:
            text = printable(str(error))
            logger.error("accounts are kept as they were, a file cannot be read%s: %s", and_more(told), text)

    def _warn_of_duplicates(self) -> None:
        owner: dict[str, Path] = {}
        for path, file in self._files.items():
            for account in file.accounts:
                first = owner.setdefault(account.access_key, path)
                if first != path:
                    key = printable(account.access_key)
                    logger.warning("account %s of %s has no effect: %s has it, too", key, path, first)

    # --- answers ------------------------------------------------------------------------------------------------------

    def version_header(
        self, *, broker_name: str, broker_addr: str, cluster_name: str
    ) -> GetBrokerAclConfigResponseHeader:
        """The versions of the default file, and of each file that has content (52)."""
        versions = {str(path): self._version(path) for path, file in self._files.items() if not file.is_empty}
        return GetBrokerAclConfigResponseHeader(
            version=dump_text(self._version(self.default_file)),
            all_acl_file_version=dump_text(versions),
            broker_name=broker_name,
            broker_addr=broker_addr,
            cluster_name=cluster_name,
        )

    @property
    def listed(self) -> AclConfig:
        """All accounts without their secrets, and all white addresses (54)."""
        files = [file.listed for file in self._files.values()]
        accounts: dict[str | None, PlainAccessConfig] = {}
        for account in (account for file in files for account in file.plain_access_configs):
            accounts.setdefault(account.access_key, account)
        white = [text for file in files for text in file.global_white_addrs]
        return AclConfig(global_white_addrs=white, plain_access_configs=list(accounts.values()))

    def _version(self, path: Path) -> DataVersion:
        file = self._files.get(path)
        if file is not None and file.version is not None:
            return file.version
        return DataVersion(timestamp_ms=self._read_ms.get(path, 0))

    # --- changes ------------------------------------------------------------------------------------------------------

    def update_account(self, header: CreateAccessConfigRequestHeader) -> Accounts:
        """Create or change an account (50): in the file that has it, else in the default file.

        Raises:
            RequestRefused: 209, with a text of the reference.
        """
        with _refused_as(_CODE.UPDATE_AND_CREATE_ACL_CONFIG_FAILED):
            fault = check_keys(header.access_key, header.secret_key)
            if fault is not None:
                raise ConfigError(fault)
            for entries in (header.topic_perms, header.group_perms):
                for entry in comma_list(entries) if entries is not None else ():
                    check_entry(entry)
            AddressPattern.of(header.white_remote_address or "")
            path = self._owner(header.access_key) or self.default_file
            return self._change(path, lambda document: put_account(document, header))

    def delete_account(self, header: DeleteAccessConfigRequestHeader) -> Accounts:
        """Delete an account (51). Raises RequestRefused: 210."""
        access_key = header.access_key
        failed = f"The accesskey[{access_key or 'null'}] corresponding to accessConfig has been deleted failed."
        path = self._owner(access_key)

        def change(document: Document) -> None:
            if access_key is None or not remove_account(document, access_key):
                raise ConfigError(failed)

        with _refused_as(_CODE.DELETE_ACL_CONFIG_FAILED):
            if path is None:
                raise ConfigError(failed)
            return self._change(path, change)

    def update_white_addresses(self, header: UpdateGlobalWhiteAddrsConfigRequestHeader) -> Accounts:
        """Set the addresses that need no signature (53), of one of the files. Raises RequestRefused: 211."""
        text = header.global_white_addrs
        with _refused_as(_CODE.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED):
            path = Path(os.path.normpath(header.acl_file_full_path)) if header.acl_file_full_path else self.default_file
            if text is None or path not in {*self._stamps, self.default_file}:
                raise ConfigError(f"The globalWhiteAddresses[{text or 'null'}] has been updated failed.")
            addresses = comma_list(text)
            for address in addresses:
                AddressPattern.of(address)
            return self._change(path, lambda document: document.update({WHITE: addresses}))

    def _owner(self, access_key: str | None) -> Path | None:
        for path, file in self._files.items():
            if any(account.access_key == access_key for account in file.accounts):
                return path
        return None

    def _change(self, path: Path, change: Callable[[Document], None]) -> Accounts:
        """Change the file as it is on the disk now. A file that could not be read afterwards is not written."""
        data, mode = b"", NEW_FILE_MODE
        if path.exists():
            data, mode = _bytes(path), stat.S_IMODE(path.stat().st_mode)
        version = parse_acl_file(data, str(path)).version or DataVersion()
        document = read_document(data, str(path)).plain() or {}
        change(document)
        put_version(document, version.next(self._now_ms()))
        changed = write_document(document)
        parse_acl_file(changed, str(path))
        write_atomically(path.resolve(), changed, keep_old=False, mode=mode)
        self._refresh()
        return self.accounts


def _below(directory: Path, depth: int, seen: set[tuple[int, int]]) -> Iterator[Path]:
    """Files of accounts below a directory: those of the directory, then those of its directories, by name."""
    try:
        status = directory.stat()
        if (status.st_dev, status.st_ino) in seen:
            return  # a link leads back
        seen.add((status.st_dev, status.st_ino))
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    is_tools = depth == DIRECTORY_DEPTH_MAX
    for entry in entries:
        if entry.name.endswith(SUFFIXES) and not (is_tools and entry.name == "tools.yml"):
            yield Path(entry.path)
    for entry in entries:
        if not entry.name.endswith(SUFFIXES) and depth > 1 and entry.is_dir():
            yield from _below(Path(entry.path), depth - 1, seen)


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(FILE_BYTES_MAX + 1)


@contextlib.contextmanager
def _refused_as(code: ResponseCode) -> Iterator[None]:
    """Answer what goes wrong with this code."""
    try:
        yield
    except (RocketError, OSError) as error:
        raise RequestRefused(code, str(error)) from None
