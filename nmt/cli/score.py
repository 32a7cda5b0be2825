"""`nmt score` scores translations against references."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, product
from typing import TYPE_CHECKING, Annotated

from typer import Option

from nmt import console
from nmt.cli.flags import CHECKPOINT, flags
from nmt.config import CorpusConfig, ScoreConfig, flag_name
from nmt.errors import NmtError
from nmt.files import STDIO

if TYPE_CHECKING:
    from nmt.scoring import MetricScore

# The beginning of the files that WMT distributes.
_SGML = re.compile(r"\s*<(\?xml|!doctype|mteval|dataset|refset|srcset|tstset|doc|seg)\b", re.IGNORECASE)


@flags()
def score(
    config: ScoreConfig,
    files: CorpusConfig,
    reference: Annotated[
        list[str],
        Option(help="Reference translations, also compressed, or in a file like .csv. May be given several times."),
    ] = [],  # noqa: B006
    hypothesis: Annotated[
        list[str], Option(help="Translations, one per line; - is standard input. Give several to compare systems.")
    ] = [STDIO],  # noqa: B006
    model: Annotated[
        list[str],
        Option(help="Without references: the calibrated model that translated; an ensemble if repeated."),
        CHECKPOINT,
    ] = [],  # noqa: B006
    source: Annotated[str | None, Option(help="With --model, the source text.")] = None,
    source_lang: Annotated[
        str | None, Option(help="Language of the source texts in a file like .csv, or of --source.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Score raw text translations against references with sacreBLEU's metrics and signatures.

    Up to 5,000 lines, each score has its 95 % confidence interval, from 1,000 bootstrap resamples.

    Without a reference, --model and --source give the mean chrF that a calibrated model expects of its translations.

    Several --hypothesis give a table. --paired tests how each differs from the first.

    --metric evalb scores trees or sequences of brackets against a treebank file, as the program EVALB does with
    its usual parameters for English, the file COLLINS.prm.
    """
    from nmt.corpora.reading import is_corpus_file, refuse_options, target_text
    from nmt.scoring import compared_scores, corpus_scores, sentence_scores
    from nmt.text.corpus import name_of, read_rows
    from nmt.text.directions import Direction
    from nmt.text.words import has_letters

    plain_texts = [("--hypothesis", path) for path in hypothesis] + [("--source", path) for path in (source,) if path]
    if tables := [(flag, path) for flag, path in plain_texts if is_corpus_file(path)]:
        problem = f"{' '.join(tables[0])} has the name of a table, JSON or archive, but its lines are taken as they are"
        raise NmtError(f"{problem}; give a file of text alone, such as of nmt generate --output-format text")
    if [*(path for _, path in plain_texts), *reference].count(STDIO) > 1:
        problem = "only one of --hypothesis, --reference and --source can be standard input (-)"
        raise NmtError(f"{problem}; give the others as files")
    if not reference:
        if not model or source is None or len(hypothesis) > 1:
            raise NmtError(
                "--reference is missing; give it, or --model and --source, which estimate the chrF of one --hypothesis"
            )
        if given := {*config.variants(), *files.variants()} - {"target_lang"}:
            raise NmtError(f"{flag_name(min(given))} needs --reference; leave it out")
        from nmt.translate.calibration import estimated_chrf

        lines = [(old, new) for old, new in read_rows(source, hypothesis[0]) if has_letters(old)]
        if not lines:
            raise NmtError(f"{source} has no line with letters; an estimate needs text")
        estimate = estimated_chrf(model, lines, Direction(source_lang or "", config.target_lang or ""))
        print(json.dumps(estimate._asdict()) if as_json else estimate)
        return
    if model or source is not None:
        flag = "--model" if model else "--source"
        raise NmtError(f"{flag} is for an estimate without --reference; leave out one of them")
    if "evalb" in config.metric:
        from nmt.cli.trees import score_trees

        if len(reference) > 1 or len(hypothesis) > 1 or len(config.metric) > 1:
            raise NmtError("--metric evalb takes exactly one --reference, one --hypothesis and no other --metric")
        score_trees(reference[0], hypothesis[0], as_json)
        return
    if config.paired != "none" and len(hypothesis) == 1:
        raise NmtError(f"--paired {config.paired} compares systems, but there is one --hypothesis; give several")
    if config.sentence_level and len(hypothesis) > 1:
        raise NmtError(f"--sentence-level scores one --hypothesis, but there are {len(hypothesis)}; give one of them")
    plain = [target_text(path, source_lang, config.target_lang, files) for path in reference]
    if plain == reference:
        refuse_options(files)
    reference = plain
    texts = {name_of(path): _read(path) for path in (*hypothesis, *reference)}
    names, reference_names = list(map(name_of, hypothesis)), list(map(name_of, reference))
    for name, other in product(names, reference_names):
        if len(texts[name]) != len(texts[other]):
            sizes = f"{console.counted(len(texts[name]), 'line')} but {other} has {len(texts[other]):,}"
            raise NmtError(f"{name} has {sizes}; line n of one must translate line n of the other")
    systems, references = [texts[name] for name in names], [texts[name] for name in reference_names]
    # Each metric is computed once. The paper's BLEU is never shown alone.
    metrics = list(dict.fromkeys(["bleu", *config.metric] if "paper-bleu" in config.metric else config.metric))
    _warn_about_text(texts, references, metrics, config)
    if config.sentence_level:
        _print_sentences({name: sentence_scores(systems[0], references, name, config) for name in metrics}, as_json)
        return
    if config.paired == "none":
        if config.bootstrap is None and not as_json and len(references[0]) <= 5000:
            config = replace(config, bootstrap=1000)
        scores = [corpus_scores(system, references, metrics, config) for system in systems]
    else:
        _warn_if_similar(names, systems)
        scores = compared_scores(systems, references, metrics, config)
    if "paper-bleu" in metrics:
        console.info(
            "compare paper-bleu only with scores from 2017 and before, because it changes punctuation, tokenises and "
            "splits compounds as those did; for any other comparison, cite sacreBLEU's BLEU with its signature"
        )
    if as_json:
        rows = [dict(zip(metrics, map(asdict, row), strict=True)) for row in scores]
        named = [{"hypothesis": name, **row} for name, row in zip(names, rows, strict=True)]
        print(json.dumps(rows[0] if len(rows) == 1 else {"hypotheses": named}))
    elif len(names) == 1:
        print("\n".join(map(str, scores[0])))
    else:
        _print_table(names, scores)


def _read(path: str) -> list[str]:
    from nmt.text.corpus import name_of, read_lines

    lines = list(read_lines(path))
    if not lines:
        raise NmtError(f"{name_of(path)} is empty; scoring needs one line per sentence")
    if _SGML.match("\n".join(lines[:10])):
        raise NmtError(
            f"{name_of(path)} is SGML or XML; give the text of its <seg> elements, one a line, as printed by sed "
            rf"-n 's|.*<seg[^>]*>\(.*\)</seg>.*|\1|p' FILE or, for sets of WMT, sacrebleu -t wmt20 -l en-de --echo ref"
        )
    return lines


def _warn_about_text(
    texts: Mapping[str, list[str]], references: Sequence[list[str]], metrics: Sequence[str], config: ScoreConfig
) -> None:
    """Warns about texts, by their names, whose scores are not comparable with published ones."""
    from nmt.scoring import TER_SPLITS, tokenizer_warning
    from nmt.text.languages import UNSPACED_SCRIPT, base_language

    for name, lines in texts.items():
        tokenized = sum(line.endswith(" .") for line in lines)
        if config.tokenize != "none" and tokenized > len(lines) / 2:
            otherwise = ", or give --tokenize none to score tokenised text" if "bleu" in metrics else ""
            console.warn(
                f"{tokenized:,} of {len(lines):,} lines of {name} end in ' .', as tokenised text does; "
                f"detokenise the text first{otherwise}"
            )
    chooses_tokenizer = "bleu" in metrics and config.tokenize is None
    if chooses_tokenizer and (warning := tokenizer_warning(config.target_lang)):
        console.warn(warning)
    language = base_language(config.target_lang or "")
    whole = ["BLEU"] if chooses_tokenizer and not language else []  # metrics that would take most lines for one word
    whole += ["TER"] if "ter" in metrics and language not in TER_SPLITS else []
    whole += ["WER"] if "wer" in metrics else []
    lines = list(chain.from_iterable(references)) if whole else []
    unspaced = sum(bool(UNSPACED_SCRIPT.search(line)) for line in lines)
    if unspaced > len(lines) / 2:
        advice = "use --metric cer or chrf" if language or whole == ["WER"] else "give --target-lang, such as zh or ja"
        console.warn(
            f"{unspaced:,} of {len(lines):,} reference lines are in a script without spaces between words, so that "
            f"{' and '.join(whole)} would take a whole line for a word; {advice}"
        )


def _warn_if_similar(names: list[str], systems: Sequence[list[str]]) -> None:
    """Warns about systems that hardly differ from the first one. The p-value of an equal one is right.

    sacreBLEU counts the resamples with a larger difference, and not those with an equal one. If few lines differ,
    many resamples are equal, and the p-value is too small.
    """
    for name, system in zip(names[1:], systems[1:], strict=True):
        changed = sum(line != other for line, other in zip(system, systems[0], strict=True))
        if 0 < changed < 10:
            console.warn(
                f"{name} differs from {names[0]} in only {changed} of {len(system):,} lines; its p-values are too small"
            )


def _print_sentences(scores: Mapping[str, list["MetricScore"]], as_json: bool) -> None:
    """Prints the scores of each sentence under each metric."""
    if as_json:
        print(json.dumps({
            metric: {"name": each[0].name, "signature": each[0].signature, "scores": [score.score for score in each]}
            for metric, each in scores.items()
        }))  # fmt: skip
        return
    for first, *_ in scores.values():
        console.info(f"{first.name} {first.signature}")
    for line_scores in zip(*scores.values(), strict=True):
        print("\t".join(f"{score.score:.2f}" for score in line_scores))


def _print_table(names: list[str], scores: list[list["MetricScore"]]) -> None:
    """Prints a table with a row for each system and columns for each metric, and then the signatures of the metrics."""
    columns = [["hypothesis", *names]]
    for metric_scores in zip(*scores, strict=True):
        columns.append([metric_scores[0].name, *(f"{score.score:.2f}" for score in metric_scores)])
        if intervals := [score.confidence for score in metric_scores if score.confidence]:
            columns.append(["95 % confidence", *(f"{c.low:.2f} to {c.high:.2f}" for c in intervals)])
        if any(score.p_value is not None for score in metric_scores):
            columns.append(["p", *("-" if s.p_value is None else f"{s.p_value:.4f}" for s in metric_scores)])
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for score in scores[0]:
        print(f"{score.name} {score.signature}")
