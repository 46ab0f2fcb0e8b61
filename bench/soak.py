"""`python -m bench.soak RESULT --docs bench/results/soak.md`: writes the page of a soak.

RESULT is the file that `make soak OPTIONS="-o RESULT"` writes; it has the commit, the machine and the date of that run.
`--strict`: a missed bar is a failure.
"""

from __future__ import annotations

from pathlib import Path

import click

from rocketpy.bench import report, result
from rocketpy.bench.result import Result
from rocketpy.bench.soak import RATE_KEPT_MIN, kept_rates
from rocketpy.errors import ConfigError

from .report import Row, command_of

KEPT = {"messages_per_s": "messages sent", "consumed_per_s": "messages consumed"}
BARS = {"pss_mib": ("memory (PSS)", "MiB"), "descriptors": ("open descriptors", "")}


def rows(found: Result) -> list[Row]:
    """Return the growth of each resource, and the share that is left of each rate, with its bar.

    Raises:
        ConfigError: the run was too short to have a growth.
    """
    (run,) = found.points[0].runs
    figures, found_rows = run.figures, list[Row]()
    try:
        for resource, (what, unit) in BARS.items():
            growth = figures[f"{resource}_per_hour"]
            bar = figures[f"{resource}_per_hour_max"]
            found_rows.append(Row(f"{what}: growth", growth, f"{unit} an hour".strip(), bar))
            found_rows.append(Row(f"{what}: after the first fifth", figures[f"{resource}_first"], unit))
            found_rows.append(Row(f"{what}: at the end", figures[f"{resource}_last"], unit))
        found_rows.append(Row("processes replaced", figures["processes_replaced"], "", 0))
    except KeyError as missing:
        raise ConfigError(f"the result of {found.name} has no {missing.args[0]}: run a longer soak") from missing
    rate = Row("messages sent, each consumed by two groups", figures["messages_per_s"], "/s")
    kept = [
        Row(f"{KEPT[name]}: last fifth, as a share of the second", share, "", RATE_KEPT_MIN, is_least=True)
        for name, share in kept_rates(run.intervals).items()
    ]
    return [rate, *kept, *found_rows, Row("requests failed", sum(run.errors.values()), "", 0)]


def page(found: Result) -> str:
    """Return the page of bench/results."""
    minutes = found.points[0].runs[0].seconds / 60
    parts = [
        "# A soak",
        f"Written by `{command_of('bench.soak')}` ([bench/README.md](../README.md)).",
        report.origin(found),
        report.keys(found.points),
        f"A steady load for {minutes:.0f} minutes on a broker of its own. Growth is the slope of a line through "
        "samples of\nall processes of the broker, after the first fifth of the time. Latencies are in the result file "
        "only: other programs\nmay share the cores for so long.",
        report.table(("figure", "value", "bar", ""), [row.cells for row in rows(found)]),
    ]
    if errors := report.errors(found.points):
        parts.append(f"Errors, by response code or kind:\n\n{errors}")
    return "\n\n".join(parts) + "\n"


@click.command()
@click.argument("file", metavar="RESULT", type=click.Path(dir_okay=False, exists=True, path_type=Path))
@click.option("--docs", type=click.Path(path_type=Path), help="Write this page of bench/results; default: print it.")
@click.option("--strict", is_flag=True, help="Fail if a bar is missed.")
def main(file: Path, docs: Path | None, *, strict: bool) -> None:
    """Write the page of a soak from its result file."""
    try:
        found = result.read(file)
        text = page(found)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if docs is None:
        click.echo(text, nl=False)
    else:
        docs.write_text(text, encoding="utf-8")
    if strict and not all(row.holds for row in rows(found)):
        raise click.ClickException("a bar is missed")


if __name__ == "__main__":
    main()
