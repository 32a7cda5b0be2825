"""Computes the content of the page about a cleaned corpus."""

from typing import Any

from nmt.cleaning.clean import Summary
from nmt.cleaning.rules import BINS, REASONS, reason_in_words
from nmt.config.options import flag_name


def page_data(summary: Summary) -> dict[str, Any]:
    """Returns the content of the page."""
    config = summary.config
    used = [reason for reason in REASONS if any(counts[reason] for counts in summary.counts)]
    return {
        "languages": config.languages,
        "corpora": [
            {"name": prefix, "read": read, "kept": kept, "dropped": [counts[reason] for reason in used]}
            for prefix, read, kept, counts in zip(config.train, summary.read, summary.kept, summary.counts, strict=True)
        ],
        "reasons": [
            {"name": reason_in_words(reason), "examples": [row for _, row in summary.examples.get(reason, [])]}
            for reason in used
        ],
        "histograms": [
            {"name": flag_name(option), "limit": summary.limits[option], "edges": edges, "counts": counts}
            for option, edges in BINS.items()
            if any(counts := [summary.histograms[f"{option} {bin}"] for bin in range(len(edges) - 1)])
        ],
    }
