"""The page of bench/results about Spark's speed: tables, the cost of a task and of a row, and the plot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from . import report
from .spark_questions import PHASES, Figure, Scale

TITLES = {
    "decode": "From log bytes to Arrow, one core, without Spark",
    "scan": "A store at rest",
    "broker": "A running broker",
    "archive": "Archive to Parquet, all columns, zstd",
    "scale": "Workers and queues",
    "tasks": "Tasks",
    "stream": "Micro-batches",
}
HEADINGS = ("what", "rows/s", "median rows/s", "median s", "MB/s of bodies", "CPU µs/row", "bar", "")


def rows_of(found: list[Figure]) -> Iterator[tuple[str, ...]]:
    for one in found:
        bodies = report.number(one.rows_per_s * one.body / 1e6) if one.body else ""
        verdict = "" if one.holds is None else "holds" if one.holds else "missed"
        rates = [report.number(number) if one.rows else "" for number in (one.rows_per_s, one.rows / one.median_s)]
        cpu = f"{one.cpu_us:.2f}" if one.rows else ""
        yield (one.what, *rates, f"{one.median_s:.3f}", bodies, cpu, one.bar, verdict)


def numbers_in(figure: Figure) -> tuple[int, int]:
    """Workers, and queues or tasks, of a figure of `scale` or `tasks`."""
    workers, other = re.findall(r"\d+", figure.what)
    return int(workers), int(other)


def costs(found: list[Figure]) -> list[str]:
    """Return the cost of a task and of a row to a worker, by the runs with few and with many tasks."""
    by_workers: dict[int, dict[int, Figure]] = {}
    for one in found:
        if one.question == "tasks":
            workers, tasks = numbers_in(one)
            by_workers.setdefault(workers, {})[tasks] = one
    lines = []
    for workers, runs in sorted(by_workers.items()):
        few, many = min(runs), max(runs)
        task_ms = (runs[many].best_s - runs[few].best_s) / (many - few) * workers * 1000
        row_us = (runs[few].best_s - few * task_ms / 1000 / workers) * workers / runs[few].rows * 1e6
        lines.append(f"| {workers} | {max(task_ms, 0.0):.1f} | {row_us:.2f} |")
    return lines


def plot(found: list[Figure], path: Path) -> None:
    """Seconds against workers, a line for each number of queues."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines: dict[int, list[tuple[int, float]]] = {}
    for one in found:
        if one.question == "scale":
            workers, queues = numbers_in(one)
            lines.setdefault(queues, []).append((workers, one.best_s))
    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    for queues, points in sorted(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=f"{queues} queues")
    axes.set(xlabel="local workers", ylabel="seconds", ylim=(0, None), xticks=[1, 2, 4])
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def write_page(path: Path, found: list[Figure], scale: Scale, load_average: float) -> None:
    parts = [
        f"{report.page_head('Spark', 'bench.spark')}\n",
        f"{scale.messages:,} messages in each topic and store; {scale.repeat} runs after one that is not counted. "
        f"Broker, JVM and Python workers share the cores. Load average before the run: {load_average:.1f}.\n",
        "rows/s: the best run. CPU: the JVM and all Python processes, without the broker.\n",
    ]
    for question, title in TITLES.items():
        figures = [one for one in found if one.question == question]
        if figures:
            parts += [f"## {title}\n", report.markdown_table(HEADINGS, rows_of(figures)) + "\n"]
        if question == "scale" and figures:
            image = path.with_suffix(".png")
            plot(found, image)
            parts.append(f"![Seconds against workers, for 10, 100 and 1000 queues]({image.name})\n")
        if question == "tasks" and figures:
            parts += _sizing(found, scale)
        if question == "stream" and figures:
            parts += _phases(figures)
    path.write_text("\n".join(parts))


def _sizing(found: list[Figure], scale: Scale) -> list[str]:
    table = [
        "| workers | a task costs a worker (ms) | a row costs a worker (µs) |",
        "| --- | --- | --- |",
        *costs(found),
    ]
    return [
        f"Costs, from the same {scale.messages:,} messages in few and in many tasks:\n",
        "\n".join(table) + "\n",
        "[How large a cluster must be](../../docs/use/spark-cluster.md#memory-and-tasks) follows from them.\n",
    ]


def _phases(figures: list[Figure]) -> list[str]:
    headings = ("median ms", *PHASES)
    rows = [(one.what, *(f"{one.phases.get(phase, 0):.0f}" for phase in PHASES)) for one in figures]
    return [
        "Rows made in memory are Spark's own part; the difference is the cost of rocketpy. Parts of a micro-batch, as "
        "the progress of a query names them:\n",
        report.markdown_table(headings, rows) + "\n",
        "`latestOffset` asks the brokers, `walCommit` and `commitOffsets` write the checkpoint, `addBatch` plans the "
        "tasks and runs them.\n",
    ]
