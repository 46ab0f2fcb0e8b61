"""Answers of pulls on their way to batches."""

from __future__ import annotations

import pytest

from rocketpy.spark.slices import joined


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], []),
        ([5], [5]),
        ([4, 6, 1], [10, 1]),
        ([11, 3, 3, 3, 3], [11, 9, 3]),
        ([1, 30, 1], [1, 30, 1]),
        ([0, 0], [0]),
    ],
)
def test_answers_are_joined_up_to_a_size(sizes: list[int], wanted: list[int]) -> None:
    images = [bytes([number]) * size for number, size in enumerate(sizes)]
    found = list(joined(images, 10))
    assert [len(image) for image in found] == wanted
    assert b"".join(found) == b"".join(images)
