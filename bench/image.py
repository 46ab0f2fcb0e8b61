"""`python -m bench.image`: how many seconds pass from the start of the image to the first acknowledged send?

The image of deploy/docker is built of this tree, and started on an empty volume each time, without a network of its
own, as `docker run --read-only --cap-drop ALL --network host` does: by Docker, or by crun where there is no daemon
(root; apt install buildah crun mmdebstrap). `--strict`: a missed bar is a failure.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from tests.support import docker, image
from tests.support.first_send import SEND_MAX_S, seconds_to_first_send

from . import report
from .report import Row

BUILT = {"docker": docker.built_image, "crun": image.built_image}


def rows(seconds: Sequence[float]) -> list[Row]:
    return [
        Row("start of the image to the first acknowledged send, median", statistics.median(seconds), "s", SEND_MAX_S),
        Row("the same, longest", max(seconds), "s"),
    ]


def page(seconds: Sequence[float], engine: str, load_average: float) -> str:
    """Return the page of bench/results. `load_average`: before the first start."""
    return f"""{report.page_head("Start of the image", "bench.image")}
{len(seconds)} starts by {engine}, one after the other, each on an empty volume; the client is on the same machine.
Nothing is pulled. Load average before the first start: {load_average:.1f}.

{report.markdown_table(("figure", "value", "bar", ""), (row.cells for row in rows(seconds)))}
"""


@click.command()
@click.option("--engine", type=click.Choice(list(BUILT)), default="docker", show_default=True)
@click.option("--tries", type=click.IntRange(1), default=10, show_default=True, help="Starts.")
@click.option("--docs", type=click.Path(path_type=Path), help="Also write this page of bench/results.")
@click.option("--strict", is_flag=True, help="Fail if the bar is missed.")
def main(engine: str, tries: int, docs: Path | None, *, strict: bool) -> None:
    """Measure starts of the image."""
    with BUILT[engine]() as built, tempfile.TemporaryDirectory(prefix="rocketpy-image-") as directory:
        load_average = os.getloadavg()[0]
        seconds = seconds_to_first_send(built, Path(directory), tries)
    click.echo(f"seconds to the first acknowledged send: {', '.join(f'{each:.2f}' for each in sorted(seconds))}")
    if docs is not None:
        docs.write_text(page(seconds, engine, load_average), encoding="utf-8")
    if strict and not all(row.holds for row in rows(seconds)):
        raise click.ClickException("the bar is missed")


if __name__ == "__main__":
    main()
