"""`nmt clean` drops pairs of a corpus that would harm a training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nmt import console
from nmt.cli.flags import flags
from nmt.config import CleanConfig, CorpusConfig, JobConfig, RuntimeConfig
from nmt.files import STDIO, output_file, refuse_inputs

if TYPE_CHECKING:
    from nmt.cleaning.clean import Summary

# So many corpora get columns of their own, which are as wide as the number of pairs of a large corpus.
_COLUMNS, _COLUMN_WIDTH = 4, len("100,000,000")
# The page shows the beginning of a line with more characters.
_SHOWN = 2000


@flags()
def clean(files: CorpusConfig, config: CleanConfig, options: JobConfig, runtime: RuntimeConfig) -> None:
    """Drop pairs of corpora that would harm a training, by rules and by scores of models.

    Reads PREFIX.en and PREFIX.de of each corpus, and writes the pairs that are kept, in the same order. The first
    rule that a pair breaks is the reason that the table, --rejected and --page give.
    """
    from nmt.cleaning.clean import clean as run
    from nmt.corpora.reading import with_plain_text
    from nmt.jobs.run import executing
    from nmt.pages.page import page

    for flag, path in (("--rejected", config.rejected), ("--page", config.page)):
        refuse_inputs(path or "", [*config.train, *config.exclude], f"{flag} {path}")
    if config.target_lang is not None:
        config = with_plain_text(config, ("train", "exclude"), [(config.source_lang, config.target_lang)], files)

    def write_page(summary: "Summary") -> None:
        if config.page is not None:
            with output_file(config.page, flag="--page") as file:
                file.write(page("cleaning", ", ".join(config.train), _page_data(summary)))

    with executing(options, config.workers) as execution:
        summary = run(config, execution, runtime, write_page)
    if summary is not None:
        _show(summary)
        written = [f"{config.dest}.{lang}" for lang in config.languages]
        console.info(f"wrote {', '.join(filter(None, [*written, config.rejected, config.page]))}")


def _page_data(summary: "Summary") -> dict[str, Any]:
    """Returns the content of the page."""
    from nmt.cleaning.rules import BINS, REASONS, reason_in_words

    config = summary.config
    used = [reason for reason in REASONS if any(counts[reason] for counts in summary.counts)]
    return {
        "languages": config.languages,
        "corpora": [
            {"name": prefix, "read": read, "kept": kept, "dropped": [counts[reason] for reason in used]}
            for prefix, read, kept, counts in zip(config.train, summary.read, summary.kept, summary.counts, strict=True)
        ],
        "reasons": [
            {
                "name": reason_in_words(reason, config),
                "examples": [[line[:_SHOWN] for line in row] for _, row in summary.examples.get(reason, [])],
            }
            for reason in used
        ],
        "histograms": [
            {
                "name": reason_in_words(option, config),
                "limit": summary.limits[option],
                "isMinimum": option.startswith("min"),
                "edges": edges,
                "counts": counts,
            }
            for option, edges in BINS.items()
            if any(counts := [summary.histograms[f"{option} {bin}"] for bin in range(len(edges) - 1)])
        ],
    }


def _show(summary: "Summary") -> None:
    """Prints how many pairs each rule dropped, on stderr if --rejected or --page is standard output."""
    from nmt.cleaning.rules import REASONS, reason_in_words

    corpora = summary.config.train if 1 < len(summary.config.train) <= _COLUMNS else ()
    table = Table(box=None, pad_edge=False)
    table.add_column("dropped by")  # wraps if the other columns need the space
    for prefix in corpora:
        table.add_column(escape(Path(prefix).name), justify="right", no_wrap=True, max_width=_COLUMN_WIDTH)
    for name in ("pairs", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    total = sum(summary.read)

    rows = {reason_in_words(reason, summary.config): [n[reason] for n in summary.counts] for reason in REASONS}
    for name, counts in (rows | {"kept": summary.kept}).items():
        if any(counts) or name == "kept":
            corpus_counts = map("{:,}".format, counts if corpora else [])
            table.add_row(name, *corpus_counts, f"{sum(counts):,}", f"{sum(counts) / total:.1%}")
    outputs = summary.config.rejected, summary.config.page
    Console(width=max(Console().width, 100), stderr=STDIO in outputs).print(table)
