"""The page of the image holds its start against its bar."""

from __future__ import annotations

from bench import image


def test_the_page_has_the_median_and_its_bar() -> None:
    text = image.page([2.5, 0.9, 1.25], "crun", 0.5)
    assert text.startswith("# Start of the image\n\nWritten by `python -m bench.image") and "Machine: cpu " in text
    assert "\n3 starts by crun, " in text
    assert "| start of the image to the first acknowledged send, median | 1.25 s | ≤ 2 s | holds |" in text
    assert "| the same, longest | 2.5 s |  |  |" in text
    assert image.rows([2.01])[0].cells[-1] == "missed"
