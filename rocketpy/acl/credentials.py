"""Credentials by which a server or a tool signs its own requests: a YAML file with `accessKey` and `secretKey`.

    tools.yml               of mqadmin; a file without both keys, or no file, means requests without a signature
    aclCredentialsFile      of a broker that calls name servers and its master; here anything missing is an error

A broker looks at its file again and again, so that a secret can be changed without a restart. A file that cannot be
used later leaves the credentials as they were.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

from rocketpy.errors import ConfigError
from rocketpy.faults import printable
from rocketpy.remoting.signature import Credentials

from .document import FILE_BYTES_MAX, read_document

logger = logging.getLogger(__name__)

KEY = "aclCredentialsFile"
OTHERS = stat.S_IRWXO
LOOK_S = 5.0
_Stamp = tuple[int, int, int, int]


def parse_credentials(data: bytes, file: str) -> Credentials | None:
    """Read the text of a file; None: one of the keys is missing or empty.

    Raises:
        ConfigError: the text cannot be understood.
    """
    members = read_document(data, file).mapping()
    texts = (members[name].text() if name in members else None for name in ("accessKey", "secretKey"))
    access_key, secret_key = ((text or "").strip() for text in texts)
    return Credentials(access_key, secret_key) if access_key and secret_key else None


def read_credentials(path: Path) -> Credentials:
    """Read the file of aclCredentialsFile.

    Raises:
        ConfigError: other users may read it, it cannot be read, or it has not both keys.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", file=path, key=KEY) from error
    if mode & OTHERS:
        raise ConfigError("other users may read it or write to it; chmod 600 this file", file=path, key=KEY)
    credentials = parse_credentials(data, str(path))
    if credentials is None:
        raise ConfigError("needs two lines, accessKey: ... and secretKey: ...", file=path, key=KEY)
    return credentials


class CredentialsFile:
    """The file of a broker, and the credentials that it has now."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError, as `read_credentials`."""
        self._path = path
        self._stamp = _stamp(path)
        self.credentials = read_credentials(path)

    def refresh(self) -> None:
        """Read the file again if it has changed. It may wait for the disk."""
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            found = read_credentials(self._path)
        except ConfigError as error:
            text = printable(str(error))
            logger.error("the changed credentials cannot be used, requests are signed with the former ones: %s", text)
            return
        if found != self.credentials:
            self.credentials = found
            logger.info("requests are signed with the changed credentials of %s", self._path)

    def refreshed(self) -> Credentials:
        """Return the credentials after a look at the file, to a caller that may wait and calls seldom."""
        self.refresh()
        return self.credentials


def _stamp(path: Path) -> _Stamp | None:
    """The state of the file; None: it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
