"""Loss and BLEU on the validation set."""

from dataclasses import dataclass

import torch

from nmt.config import SearchConfig, TrainConfig
from nmt.data.batching import make_plan
from nmt.data.loader import updates
from nmt.data.store import DataFolder
from nmt.decoding.translator import Translator
from nmt.model.runtime import Runtime
from nmt.scoring.bleu import ScoreConfig, corpus_scores
from nmt.training.loss import TrainingLoss
from nmt.training.metrics import perplexity


@dataclass(frozen=True)
class Validation:
    """Attributes:
    nll, ppl: of a target piece, EOS included, in nats and without label smoothing.
    bleu: sacreBLEU of the detokenised beam output against the raw reference; None if not asked for.
    """

    nll: float
    ppl: float
    bleu: float | None

    @property
    def goodness(self) -> float:
        """What the best checkpoint is chosen by: BLEU, or else the loss."""
        return -self.nll if self.bleu is None else self.bleu


@torch.no_grad()
def validate(model: TrainingLoss, data: DataFolder, runtime: Runtime, config: TrainConfig) -> Validation:
    """Validates with the model in evaluation mode, and leaves it in training mode."""
    model.eval()
    split = data.split("valid")
    plan = make_plan(
        split.source.lengths + 1, split.target.lengths + 1, batch_tokens=config.device_tokens, groups=1, seed=0, epoch=0
    )
    total, tokens = 0.0, 0
    for batches in updates(split, plan, config.device_tokens):
        for batch in batches:
            with runtime.autocast():
                _, nll = model(batch.to(runtime.device))
            total, tokens = total + float(nll), tokens + batch.target_tokens
    bleu = _bleu(model, data, runtime) if config.valid_bleu else None
    model.train()
    return Validation(total / tokens, perplexity(total / tokens), bleu)


def _bleu(model: TrainingLoss, data: DataFolder, runtime: Runtime) -> float:
    text = data.codec.config
    source, reference = (data.raw_lines("valid", lang) for lang in (text.source_lang, text.target_lang))
    output = Translator([model.model], data.codec, runtime).translate(source, SearchConfig())
    return corpus_scores(output, [reference], config=ScoreConfig(lowercase=text.lowercase))[0].score
