"""The progress of transactions as a start finds it in consumerOffset.json, of either broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketpy.startup.boot.half_messages import stored_progress

JAVA = '{\n\t"offsetTable":{"T@G":{0:7},\n\t\t"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{0:12\n\t\t}\n\t}\n}'
OTHERS = '{"offsetTable":{"RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS":{"0":5}}}'


@pytest.mark.parametrize(
    ("text", "progress"),
    [
        (JAVA, 12),
        ('{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{"0":3}}}', 3),
        ('{"offsetTable":{"RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS":{"0":-1}}}', 0),
        (OTHERS, 0),
        ("", 0),
    ],
)
def test_the_progress_is_found(tmp_path: Path, text: str, progress: int) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_text(text)
    assert stored_progress(path) == progress


def test_the_file_before_it_is_used_if_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "consumerOffset.json"
    assert stored_progress(path) == 0
    (tmp_path / "consumerOffset.json.bak").write_text(JAVA)
    assert stored_progress(path) == 12
