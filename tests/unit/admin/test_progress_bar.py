"""The progress of long work: a terminal shows it between the rows, anything else gets nothing."""

import io

from rocketpy.admin.output import Format, Output
from rocketpy.admin.progress_bar import ERASE_LINE, ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rows_and_bar(file: io.StringIO | None) -> list[str]:
    rows: list[str] = []
    out = Output(Format.TEXT, rows.append, rows.append, ProgressBar(file))
    for item in out.steps(["a", "b", "c"], "topics"):
        out.line(item)
    out.warn("done")
    return rows


def test_a_terminal_shows_how_many_are_done() -> None:
    file = Terminal()
    assert rows_and_bar(file) == ["a", "b", "c", "done"]
    drawn = file.getvalue()
    assert drawn.count(ERASE_LINE) >= 3, "the line is taken away before each row"
    assert "topics" in drawn and "0/3" in drawn and "2/3" in drawn
    assert drawn.endswith(ERASE_LINE[1:]) or "\x1b[1A\x1b[2K" in drawn, "the bar is gone at the end"
    assert "\x1b[?25h" in drawn, "the cursor is back"


def test_a_file_gets_nothing() -> None:
    file = io.StringIO()
    assert rows_and_bar(file) == rows_and_bar(None) == ["a", "b", "c", "done"]
    assert file.getvalue() == ""


def test_work_of_unknown_length() -> None:
    file = Terminal()
    with ProgressBar(file).task("messages", None) as reached:
        reached(7)
    assert "7/?" in file.getvalue()
