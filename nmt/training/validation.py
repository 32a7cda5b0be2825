"""Computes loss and BLEU on the validation set; the ranks share the work."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from nmt import console
from nmt.config import ScoreConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import updates
from nmt.errors import StoppedError
from nmt.scoring.metrics import corpus_scores
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import perplexity
from nmt.training.state import Setup
from nmt.translate.translator import Translator

# Number of translations that a validation records in metrics.jsonl.
_SAMPLES = 8


@dataclass(frozen=True)
class Sample:
    """A line of the validation set with its reference and its translation."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """The result of a validation.

    Attributes:
        nll: the mean negative log-likelihood of a target piece, EOS included, in nats and without label smoothing.
        ppl: the perplexity, e^nll.
        bleu, chrf: sacreBLEU's scores of the detokenised beam output against the raw reference; None if --valid-metric
            does not ask for it.
        bleu_signature: sacreBLEU's signature of BLEU, which names the tokeniser; None without BLEU.
        samples: translations of a few lines, the same lines in every validation.
    """

    nll: float
    ppl: float
    bleu: float | None = None
    chrf: float | None = None
    bleu_signature: str | None = None
    samples: tuple[Sample, ...] = ()


@dataclass(frozen=True)
class Validator:
    """Validates a model in training; each rank does its share of the work."""

    setup: Setup
    loss: TrainingLoss

    @torch.no_grad()
    def validate(self) -> Validation:
        """Returns the result of a validation on all ranks; leaves the model in training mode.

        Raises:
            StoppedError: on all ranks, if any of them was asked to stop.
        """
        self.loss.eval()
        share = None
        try:
            source, reference = self._text()
            share = self._nll(), self._translations(source)
        except StoppedError:
            pass
        self.loss.train()
        self.setup.world.end_together(share is None)
        assert share
        losses, translations = zip(*self.setup.world.gather(share), strict=True)
        nll = sum(total for total, _ in losses) / sum(tokens for _, tokens in losses)
        found = Validation(nll, perplexity(nll))
        return self._scored(found, source, reference, translations) if self.setup.config.translates else found

    def _nll(self) -> tuple[float, int]:
        """Returns the negative log-likelihood of this rank's share, in nats, and its number of target tokens."""
        data, runtime, world = self.setup.data, self.setup.runtime, self.setup.world
        split = data.split("valid")
        budget = self.setup.device_tokens
        plan = make_plan(split.source.lengths, split.target.lengths, batch_tokens=budget, groups=1, seed=0, epoch=0)
        total, tokens = 0.0, 0
        prepared = closing(updates(split, plan, budget, rank=world.rank, ranks=world.size))
        with _progress("computing the validation loss", len(plan), "batch") as progress, prepared as of_rank:
            for update in of_rank:
                self.setup.stop.check()
                for batch in update.batches:
                    with runtime.autocast():
                        _, nll = self.loss(batch.to(runtime.device))
                    total += float(nll)
                    tokens += batch.target_tokens
                progress.advance(1)
        return total, tokens

    def _text(self) -> tuple[list[str], list[str]]:
        """Returns the raw source and target lines; empty lists if they are not translated."""
        if not self.setup.config.translates:
            return [], []
        data, text = self.setup.data, self.setup.data.codec.config
        return data.raw_lines("valid", text.source_lang), data.raw_lines("valid", text.target_lang)

    def _translations(self, source: list[str]) -> list[str]:
        """Returns translations of this rank's lines: line `rank`, and every `world.size`-th line after it."""
        if not self.setup.config.translates:
            return []
        world, stop = self.setup.world, self.setup.stop
        translator = Translator([self.loss.model], self.setup.data.codec, self.setup.runtime)
        share = source[world.rank :: world.size]
        with _progress("translating the validation set", len(share), "sentence") as progress:

            def advance(sentences: int) -> None:
                stop.check()
                progress.advance(sentences)

            return translator.translate(share, SearchConfig(), advance)

    def _scored(
        self, found: Validation, source: list[str], reference: list[str], shares: Sequence[list[str]]
    ) -> Validation:
        """Returns the validation with the scores of the translations, and with samples."""
        output = [""] * len(source)
        for rank, share in enumerate(shares):
            output[rank :: len(shares)] = share
        text = self.setup.data.codec.config
        metrics = [metric for metric in self.setup.config.valid_metric if metric != "nll"]
        config = ScoreConfig(lowercase=text.lowercase, target_lang=text.target_lang)
        scores = dict(zip(metrics, corpus_scores(output, [reference], metrics, config), strict=True))
        chosen = range(0, len(output), -(-len(output) // _SAMPLES))
        return replace(
            found,
            **{metric: score.score for metric, score in scores.items()},
            bleu_signature=scores["bleu"].signature if "bleu" in scores else None,
            samples=tuple(Sample(source[i], reference[i], output[i]) for i in chosen),
        )


def _progress(description: str, total: int, unit: str) -> console.Progress:
    return console.Progress(description, total, unit, summary=False)
