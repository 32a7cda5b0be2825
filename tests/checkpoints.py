"""Small checkpoints that several tests use."""

from dataclasses import asdict, replace
from functools import cache

import torch

from nmt.checkpoint import Checkpoint, new_model
from nmt.config import ModelConfig, TrainConfig
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.subword import Subword
from nmt.training.state import Counters

CONFIG = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=8, d_ff=8, heads=2, d_k=4, d_v=4, dropout=0.1)
TEXT_CONFIG = TextConfig(
    source_lang="en",
    target_lang="de",
    source_tokenizer="none",
    target_tokenizer="none",
    normalize_punctuation="both",
    lowercase=False,
    subword="bpe",
    joint_vocab=True,
)


@cache
def small_codec() -> TextCodec:
    subword = Subword.train(["some words to learn pieces from, and a few more words"] * 5, "bpe", 300)
    return TextCodec(TEXT_CONFIG, subword, subword)


def small_checkpoint(seed: int) -> Checkpoint:
    torch.manual_seed(seed)
    weights = new_model(CONFIG, small_codec()).state_dict()
    return Checkpoint(CONFIG, small_codec(), weights, {"update": seed}, {"counters": {"update": seed}})


def resumable_checkpoint(update: int) -> Checkpoint:
    """Returns a small training state with everything that training needs to resume."""
    checkpoint = small_checkpoint(update)
    moments = [(torch.rand_like(weight), torch.rand_like(weight)) for weight in checkpoint.weights.values()]
    state = {
        number: {"step": torch.tensor(float(update)), "exp_avg": first, "exp_avg_sq": second}
        for number, (first, second) in enumerate(moments)
    }
    training = {"optimizer": {"state": state, "param_groups": []}, "counters": asdict(Counters(update=update))}
    provenance = {"options": TrainConfig(save_dir="run").to_dict(), "data": "a fingerprint", "plan": 1}
    return replace(checkpoint, training=training, provenance=provenance)
