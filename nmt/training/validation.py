"""Computes loss and BLEU on the validation set; the ranks share the work."""

from contextlib import closing, suppress
from dataclasses import replace

import torch

from nmt import console
from nmt.config import ScoreConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import updates
from nmt.errors import StoppedError
from nmt.model.device import moved
from nmt.scoring import corpus_scores
from nmt.training.records import Scores, Validation
from nmt.training.state import Training
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.translator import Translator


@torch.no_grad()
def validate(training: Training) -> Validation:
    """Returns the result of a validation on all ranks; leaves the model in training mode.

    Raises:
        StoppedError: on all ranks, if any of them was asked to stop.
    """
    training.loss.eval()
    share = None
    with training.average.in_use(), suppress(StoppedError):
        share = _nll(training), _translations(training) if training.config.translates else []
    training.loss.train()
    training.world.end_together(share is None)
    assert share
    losses, translations = zip(*training.world.gather(share), strict=True)
    scores = Scores(training.counters.update, sum(total for total, _ in losses) / sum(tokens for _, tokens in losses))
    if not training.config.translates:
        return Validation(scores)
    text = training.data.codec.config
    source, reference = (training.data.raw_lines("valid", lang) for lang in (text.source_lang, text.target_lang))
    output = [""] * len(source)
    for rank, translated in enumerate(translations):
        output[rank :: len(translations)] = translated
    metrics = [metric for metric in training.config.valid_metric if metric != "nll"]
    config = ScoreConfig(lowercase=text.lowercase, target_lang=text.target_lang)
    computed = dict(zip(metrics, corpus_scores(output, [reference], metrics, config), strict=True))
    bleu, chrf = (computed[metric].score if metric in computed else None for metric in ("bleu", "chrf"))
    sampled = range(0, len(output), -(-len(output) // 8))  # eight translations for metrics.jsonl
    return Validation(
        replace(scores, bleu=bleu, chrf=chrf),
        computed["bleu"].signature if "bleu" in computed else None,
        [{"source": source[i], "reference": reference[i], "output": output[i]} for i in sampled],
    )


def _nll(training: Training) -> tuple[float, int]:
    """Returns the negative log-likelihood of this rank's share, in nats, and its number of target tokens."""
    split, budget, world = training.data.split("valid"), training.device_tokens, training.world
    plan = make_plan((split.source.lengths, split.target.lengths), batch_tokens=budget, groups=1, seed=0, epoch=0)
    total, tokens = 0.0, 0
    progress = console.Progress("computing the validation loss", len(plan), "batch", summary=False)
    with progress, closing(updates(split, plan, budget, rank=world.rank, ranks=world.size)) as of_rank:
        for update in of_rank:
            training.stop.check()
            for batch in update.batches:
                with training.runtime.autocast():
                    _, nll = training.loss(moved(batch, training.runtime.device))
                total += float(nll)
                tokens += batch.target_tokens
            progress.advance(1)
    return total, tokens


def _translations(training: Training) -> list[str]:
    """Returns translations of line `rank` and every `world.size`-th line after it."""
    data, world = training.data, training.world
    translator = Translator(PyTorchEngine([training.loss.model], data.codec, training.runtime))
    share = data.raw_lines("valid", data.codec.config.source_lang)[world.rank :: world.size]
    with console.Progress("translating the validation set", len(share), "sentence", summary=False) as progress:

        def advance(sentences: int) -> None:
            training.stop.check()
            progress.advance(sentences)

        return translator.translate(share, SearchConfig(), advance)
