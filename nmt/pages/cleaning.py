"""Computes the content of the page about a cleaned corpus."""

from typing import Any

from nmt.cleaning.clean import Summary
from nmt.cleaning.rules import REASONS, RULES, reason_in_words
from nmt.config.options import flag_name


def page_data(summary: Summary) -> dict[str, Any]:
    """Returns the content of the page."""
    config = summary.config
    used = [reason for reason in REASONS if any(counts[reason] for counts in summary.counts)]
    return {
        "languages": config.languages,
        "corpora": [
            {
                "name": prefix,
                "read": read,
                "kept": read - counts.total(),
                "dropped": [counts[reason] for reason in used],
            }
            for prefix, read, counts in zip(config.train, summary.read, summary.counts, strict=True)
        ],
        "reasons": [
            {"name": reason_in_words(reason), "examples": [row for _, row in summary.examples.get(reason, [])]}
            for reason in used
        ],
        "histograms": [
            {
                "name": flag_name(rule.option),
                "limit": getattr(config, rule.option),
                "edges": rule.bins,
                "counts": [summary.histograms[f"{rule.option} {bin}"] for bin in range(len(rule.bins) - 1)],
            }
            for rule in RULES
            if any(summary.histograms[f"{rule.option} {bin}"] for bin in range(len(rule.bins) - 1))
        ],
    }
