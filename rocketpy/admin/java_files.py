"""Files that Java's mqadmin writes: below /tmp/rocketmq, and under names that clients choose.

All users of a machine share /tmp, so nothing is written into a directory of somebody else. The name of a body's file is
the message's id, which its producer chooses: one that could be a path is replaced by the id of the broker.

Short: rules of Java's for exports, bodies of messages and states of members.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rocketpy.client.messages import ReceivedMessage
from rocketpy.errors import ClientError

JAVA_DIRECTORY = Path("/tmp/rocketmq")
EXPORT_DIRECTORY = JAVA_DIRECTORY / "export"
BODY_DIRECTORY = JAVA_DIRECTORY / "msgbodys"
_FILE_NAME = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z_.:@#%-]{0,127}", re.ASCII)


def is_file_name(text: str) -> bool:
    """Return True if the text names a file of its directory: a stranger may have chosen a path, or too long a name."""
    return _FILE_NAME.fullmatch(text) is not None


def check_owner(directory: Path) -> None:
    """Raises ClientError: this directory of Java's belongs to another user. Others are not checked."""
    parts = [part for part in (directory, *directory.parents) if part.is_relative_to(JAVA_DIRECTORY)]
    for part in parts:
        if part.is_symlink() or (part.exists() and sys.platform != "win32" and part.stat().st_uid != os.geteuid()):
            raise ClientError(f"{part} belongs to another user: choose a place of your own")


def body_path(message: ReceivedMessage) -> Path:
    """Return the file to which Java's mqadmin writes the body of this message. Raises ClientError as `check_owner`."""
    check_owner(BODY_DIRECTORY)
    return BODY_DIRECTORY / (message.msg_id if is_file_name(message.msg_id) else message.offset_msg_id)
