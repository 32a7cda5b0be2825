"""Loss and BLEU on the validation set; the ranks share the work."""

from dataclasses import dataclass

import torch

from nmt.config import ScoreConfig, SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import check_ids, updates
from nmt.decoding.translator import Translator
from nmt.errors import DataChanged, Interrupted
from nmt.scoring.bleu import corpus_scores
from nmt.training.agreement import end_together
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import perplexity
from nmt.training.setup import Setup

# Translations that the log keeps for people to read.
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
        nll, ppl: of a target piece, EOS included, in nats and without label smoothing.
        bleu: sacreBLEU of the detokenised beam output against the raw reference; None if not asked for.
        samples: translations of a few lines, the same ones every time.
    """

    nll: float
    ppl: float
    bleu: float | None
    samples: tuple[Sample, ...]

    @property
    def selection_score(self) -> float:
        """The score that selects the best checkpoint, higher is better: BLEU, or else the negative loss."""
        return -self.nll if self.bleu is None else self.bleu


@dataclass(frozen=True)
class Validator:
    """Validates a model in training; each rank does its share of the work."""

    setup: Setup
    loss: TrainingLoss

    @torch.no_grad()
    def validate(self) -> Validation:
        """Validates with the model in evaluation mode, and leaves it in training mode.

        Raises:
            Interrupted: on all ranks, if any of them was asked to stop.
            DataChanged: on all ranks, if the validation data of any of them has changed.
        """
        self.loss.eval()
        share, reason = None, None
        try:
            source, reference = self._text()
            share = self._nll(), self._translations(source)
        except (Interrupted, DataChanged) as ended:
            reason = ended
        self.loss.train()
        end_together(self.setup.world, reason)
        assert share
        shares = self.setup.world.gather(share)
        nll = sum(nll for (nll, _), _ in shares) / sum(tokens for (_, tokens), _ in shares)
        if not self.setup.config.valid_bleu:
            return Validation(nll, perplexity(nll), None, ())
        return Validation(nll, perplexity(nll), *self._scored(source, reference, [found for _, found in shares]))

    def _nll(self) -> tuple[float, int]:
        """Returns the negative log-likelihood of this rank's share, and its target tokens."""
        data, runtime, world = self.setup.data, self.setup.runtime, self.setup.world
        split, budget = data.split("valid"), self.setup.device_tokens
        split.check_files()
        plan = make_plan(split.source.lengths, split.target.lengths, batch_tokens=budget, groups=1, seed=0, epoch=0)
        total, tokens = 0.0, 0
        for update in updates(split, plan, budget, rank=world.rank, ranks=world.size):
            self.setup.stop.check()
            for batch in update.batches:
                check_ids(batch, data)
                with runtime.autocast():
                    _, nll = self.loss(batch.to(runtime.device))
                total, tokens = total + float(nll), tokens + batch.target_tokens
        return total, tokens

    def _text(self) -> tuple[list[str], list[str]]:
        """Returns the raw source and target lines; nothing if there is no BLEU to compute."""
        if not self.setup.config.valid_bleu:
            return [], []
        data, text = self.setup.data, self.setup.data.codec.config
        return data.raw_lines("valid", text.source_lang), data.raw_lines("valid", text.target_lang)

    def _translations(self, source: list[str]) -> list[str]:
        """Returns the translations of this rank's lines: line `rank`, and every `world.size`-th after it."""
        if not self.setup.config.valid_bleu:
            return []
        world, stop = self.setup.world, self.setup.stop
        translator = Translator([self.loss.model], self.setup.data.codec, self.setup.runtime)
        return translator.translate(source[world.rank :: world.size], SearchConfig(), lambda _: stop.check())

    def _scored(
        self, source: list[str], reference: list[str], shares: list[list[str]]
    ) -> tuple[float, tuple[Sample, ...]]:
        """Returns BLEU, and some of the translations."""
        output = [""] * len(source)
        for rank, share in enumerate(shares):
            output[rank :: len(shares)] = share
        lowercase = self.setup.data.codec.config.lowercase
        bleu = corpus_scores(output, [reference], config=ScoreConfig(lowercase=lowercase))[0].score
        chosen = range(0, len(output), -(-len(output) // _SAMPLES))
        return bleu, tuple(Sample(source[i], reference[i], output[i]) for i in chosen)
