"""`nmt report` writes an HTML page about runs, or serves it while they train."""

from typing import Annotated

from typer import Argument, Option

from nmt import console
from nmt.errors import NmtError
from nmt.files import STDIO, output_file

_PORT = 6007  # TensorBoard has 6006


def report(
    runs: Annotated[list[str], Argument(metavar="RUN", help="Run folders (--save-dir of nmt train).")],
    output: Annotated[str | None, Option(help="HTML file to write. By default, report.html.")] = None,
    name: Annotated[
        list[str],
        Option(
            help="Name of a run on the page. Give it once for each run. By default, the path without the first folders "
            "that all runs share."
        ),
    ] = [],  # noqa: B006
    watch: Annotated[
        bool,
        Option(
            "--watch",
            help=f"Write no file, but show the page on http://localhost:{_PORT}, or on another port if that is "
            "taken, and keep it current.",
        ),
    ] = False,
    sustained_tflops: Annotated[
        float | None,
        Option(
            min=0.001,
            max=1_000_000_000,
            help="TFLOP/s of the device in practice, from which the page states the cost in FLOPs.",
        ),
    ] = None,
) -> None:
    """Write one HTML page that shows one run or compares several.

    The page shows state, results and speed of the runs; curves of loss, perplexity, BLEU, learning rate, gradient
    norm and speed; differences between the runs; sample translations; cost beside the paper's Table 2; and all
    options. It is self-contained.
    """
    if watch and output is not None:
        raise NmtError("--watch writes no file, but --output was given; leave out one of the two")
    from nmt.pages.report import read_runs, report_data, report_page
    from nmt.pages.report_server import serve

    read = read_runs(runs, name)
    data = report_data(read, sustained_tflops)  # also with --watch, so that wrong runs end the command
    if watch:
        serve(runs, name, sustained_tflops, _PORT)
        return
    path = "report.html" if output is None else output
    with output_file(path, [run.file for run in read]) as file:
        file.write(report_page(data))
    if path != STDIO:
        console.info(f"wrote {path}")
