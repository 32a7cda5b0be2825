"""Loss and BLEU on the validation set, shared out over the ranks."""

from dataclasses import dataclass

import torch

from nmt.config import SearchConfig
from nmt.data.batching import make_plan
from nmt.data.loader import check_ids, updates
from nmt.data.store import DataFolder
from nmt.decoding.translator import Translator
from nmt.errors import DataChanged, Interrupted
from nmt.model.runtime import Runtime
from nmt.scoring.bleu import ScoreConfig, corpus_scores
from nmt.training.agreement import end_together
from nmt.training.distributed import World
from nmt.training.interrupts import StopSignals
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import perplexity

# Translations that are kept to be looked at.
_SAMPLES = 8


@dataclass(frozen=True)
class Sample:
    """A line of the validation set with its reference and what the model makes of it."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Validation:
    """Attributes:
    nll, ppl: of a target piece, EOS included, in nats and without label smoothing.
    bleu: sacreBLEU of the detokenised beam output against the raw reference; None if not asked for.
    samples: a few translations, of the same lines every time.
    """

    nll: float
    ppl: float
    bleu: float | None
    samples: tuple[Sample, ...]

    @property
    def goodness(self) -> float:
        """What the best checkpoint is chosen by: BLEU, or else the loss."""
        return -self.nll if self.bleu is None else self.bleu


@dataclass(frozen=True)
class Validator:
    """Validates a model in training; each rank does its share of the work."""

    model: TrainingLoss
    data: DataFolder
    runtime: Runtime
    with_bleu: bool
    device_tokens: int
    world: World
    stop: StopSignals

    @torch.no_grad()
    def validate(self) -> Validation:
        """Validates with the model in evaluation mode, and leaves it in training mode.

        Raises:
            Interrupted: on all ranks, if any of them was asked to stop.
            DataChanged: on all ranks, if the validation data of any of them has changed.
        """
        self.model.eval()
        share, reason = None, None
        try:
            source, reference = self._text()
            share = self._nll(), self._translations(source)
        except (Interrupted, DataChanged) as ended:
            reason = ended
        self.model.train()
        end_together(self.world, reason)
        assert share
        shares = self.world.gather(share)
        nll = sum(nll for (nll, _), _ in shares) / sum(tokens for (_, tokens), _ in shares)
        if not self.with_bleu:
            return Validation(nll, perplexity(nll), None, ())
        return Validation(nll, perplexity(nll), *self._scored(source, reference, [found for _, found in shares]))

    def _nll(self) -> tuple[float, int]:
        """The negative log-likelihood of this rank's share, and its target tokens."""
        split, budget = self.data.split("valid"), self.device_tokens
        split.check_files()
        plan = make_plan(split.source.lengths, split.target.lengths, batch_tokens=budget, groups=1, seed=0, epoch=0)
        total, tokens = 0.0, 0
        for update in updates(split, plan, budget, rank=self.world.rank, ranks=self.world.size):
            self.stop.check()
            for batch in update.batches:
                check_ids(batch, self.data)
                with self.runtime.autocast():
                    _, nll = self.model(batch.to(self.runtime.device))
                total, tokens = total + float(nll), tokens + batch.target_tokens
        return total, tokens

    def _text(self) -> tuple[list[str], list[str]]:
        """Returns the raw source and target lines; nothing if there is no BLEU to compute."""
        if not self.with_bleu:
            return [], []
        config = self.data.codec.config
        return self.data.raw_lines("valid", config.source_lang), self.data.raw_lines("valid", config.target_lang)

    def _translations(self, source: list[str]) -> list[str]:
        """Returns the translations of every `world.size`-th line, from line `rank` on."""
        if not self.with_bleu:
            return []
        lines = source[self.world.rank :: self.world.size]
        translator = Translator([self.model.model], self.data.codec, self.runtime)
        return translator.translate(lines, SearchConfig(), lambda _: self.stop.check())

    def _scored(
        self, source: list[str], reference: list[str], shares: list[list[str]]
    ) -> tuple[float, tuple[Sample, ...]]:
        """Returns BLEU, and some of the translations."""
        output = [""] * len(source)
        for rank, share in enumerate(shares):
            output[rank :: self.world.size] = share
        lowercase = self.data.codec.config.lowercase
        bleu = corpus_scores(output, [reference], config=ScoreConfig(lowercase=lowercase))[0].score
        chosen = range(0, len(output), -(-len(output) // _SAMPLES))
        return bleu, tuple(Sample(source[i], reference[i], output[i]) for i in chosen)
