"""What `make follow-pages` runs: every block of the pages in order, in one shell, unless a mark says otherwise."""

from __future__ import annotations

import re

import pytest

from tests.support.follow_page import NOT_RUN, Block, blocks_of, sessions_of
from tests.support.rules import ROOT, enough

PAGE = """# Page

```sh
A=1
```

<!-- follow: network -->
```sh
apt-get install x
```

```python
not run
```

<!-- follow: any status -->
```sh
false
```

<!-- follow: not run: no such disk -->
```sh
mkfs /dev/sdz
```
"""


def test_blocks_have_their_lines_and_marks() -> None:
    assert blocks_of(PAGE) == [
        Block(4, "", "A=1\n"),
        Block(9, "network", "apt-get install x\n"),
        Block(18, "any status", "false\n"),
        Block(23, "not run: no such disk", "mkfs /dev/sdz\n"),
    ]


def test_blocks_share_a_shell_except_those_with_the_network() -> None:
    sessions = list(sessions_of(blocks_of(PAGE)))
    assert [has_network for has_network, _ in sessions] == [False, True, False]
    assert "A=1\n" in sessions[0][1] and "apt-get install x\n" in sessions[1][1]
    assert "set +e\n" in sessions[2][1] and sessions[2][1].index("false") < sessions[2][1].index("set -e")
    assert "mkfs" not in sessions[2][1] and "line 23: not run: no such disk" in sessions[2][1]


def test_a_mark_that_is_none() -> None:
    with pytest.raises(ValueError, match="`<!-- follow: sometimes -->` is no mark"):
        blocks_of("<!-- follow: sometimes -->\n```sh\ntrue\n```\n")


def test_most_blocks_of_the_followed_pages_are_run() -> None:
    recipe = re.findall(r"follow_page (.+)", (ROOT / "Makefile").read_text())
    pages = enough({page for line in recipe for page in line.split()}, 4, "pages")
    blocks = enough((block for page in pages for block in blocks_of((ROOT / page).read_text())), 15, "blocks")
    assert sum(block.mark.startswith(NOT_RUN) for block in blocks) < len(blocks) / 3
