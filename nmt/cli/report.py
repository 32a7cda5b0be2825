"""`nmt report` writes an HTML page about runs."""

from typing import Annotated

import typer

from nmt import console
from nmt.files import output_file


def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders (--save-dir of nmt train).")],
    output: Annotated[str, typer.Option(help="HTML file to write.")] = "report.html",
    name: Annotated[
        list[str],
        typer.Option(help="Name of a run on the page. Give it once for each run, or let the paths name the runs."),
    ] = [],  # noqa: B006 (typer copies it)
    sustained_tflops: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=1_000_000_000,
            help="TFLOP/s that one device sustains; the report then states training cost as the paper does.",
        ),
    ] = None,
) -> None:
    """Write one HTML page that shows one run or compares several.

    The page shows curves of loss, perplexity, BLEU, learning rate, gradient norm and speed; results and cost beside
    the paper's Table 2; sample translations; configuration and provenance. It is self-contained.
    """
    from nmt.pages.page import page
    from nmt.pages.report import report_data
    from nmt.pages.runs import read_runs

    read = read_runs(runs, name)
    with output_file(output, [run.file for run in read]) as file:
        file.write(page("report", ", ".join(run.name for run in read), report_data(read, sustained_tflops)))
    console.info(f"wrote {output}")
