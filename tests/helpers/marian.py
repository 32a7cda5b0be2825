"""Random MarianMT models in the format of Hugging Face, as transformers writes them."""

import io
import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers  # loads its models only when a test writes one

_SCRIPTS = [(0x61, 0x7A), (0xC0, 0xFF), (0x370, 0x3FF), (0x410, 0x44F), (0x5D0, 0x5EA), (0x621, 0x64A), (0x905, 0x939),
            (0x3041, 0x3093), (0x4E00, 0x4E60), (0xAC00, 0xAC60), (0x1F600, 0x1F640), (0x30, 0x39)]  # fmt: skip
_MARKS = [".", ",", "!", "…", "«", "»", "“", "’", "-", "   ", "\u00a0", "\u3000", "½", "ﬁ", "e\u0301", "&amp;", "▁"]


def change(name: str, **values: Any) -> Callable[[Path], None]:
    """Returns a function that changes fields of a JSON file; None removes a field."""

    def apply(folder: Path) -> None:
        content = json.loads((folder / name).read_text()) | values
        (folder / name).write_text(json.dumps({k: v for k, v in content.items() if v is not None}))

    return apply


def mixed_lines(count: int, seed: int) -> list[str]:
    """Returns lines of words in many scripts, with marks and spaces that normalisation changes."""
    draw = random.Random(seed)

    def word() -> str:
        first, last = draw.choice(_SCRIPTS)
        return "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 6)))

    def marked() -> str:
        return word() + (draw.choice(_MARKS) if draw.random() < 0.3 else "")

    return [" ".join(marked() for _ in range(draw.randint(0, 12))) for _ in range(count)]


@cache
def spm(seed: int, size: int) -> bytes:
    """Returns a sentencepiece model with its usual ids and normalisation, as those of Opus-MT."""
    model = io.BytesIO()
    options: dict[str, Any] = {"vocab_size": size, "hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1}
    lines = iter(mixed_lines(1000, seed))
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **options)
    return model.getvalue()


def vocabulary(*models: bytes, codes: Sequence[str] = (">>fra<<",)) -> dict[str, int]:
    """Returns a vocabulary with EOS first and PAD last, as Opus-MT has it."""
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    pieces = [processor.id_to_piece(i) for processor in processors for i in range(3, len(processor))]
    return {piece: i for i, piece in enumerate(dict.fromkeys(["</s>", "<unk>", *codes, *pieces, "<pad>"]))}


def write_model(
    folder: Path,
    *,
    separate_vocabs: bool = False,
    spare_ids: int = 0,
    codes: Sequence[str] = (">>fra<<",),
    source_lang: str = "en",
    **options: Any,
) -> "transformers.MarianMTModel":
    """Writes a folder with a random model, and returns the model.

    Args:
        separate_vocabs: whether each side has a vocabulary of its own.
        spare_ids: how many ids without a piece the model has.
        codes: the language codes in its vocabulary.
        options: settings of MarianConfig.
    """
    folder.mkdir()
    models = spm(1, 1000), spm(2, 900)
    for name, model in zip(("source", "target"), models, strict=True):
        (folder / f"{name}.spm").write_bytes(model)
    pieces = vocabulary(*models, codes=codes)
    # transformers takes the ids of both sides from one vocabulary, so both must have the same size.
    for name in ("vocab.json", "target_vocab.json")[: 1 + separate_vocabs]:
        (folder / name).write_text(json.dumps(pieces))
    tokenizer = {"source_lang": source_lang, "target_lang": "fr", "separate_vocabs": separate_vocabs}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    pad = pieces["<pad>"]
    small = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    small |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 256}
    special = {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    torch.manual_seed(0)
    config = transformers.MarianConfig(**{"vocab_size": len(pieces) + spare_ids, **small, **special, **options})
    made = transformers.MarianMTModel(config).eval()
    for name, weight in made.named_parameters():
        if "embed_positions" not in name:
            torch.nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, 0.15)
    with torch.no_grad():
        made.final_logits_bias.normal_(std=0.5)
        made.final_logits_bias[0, 0] += 3  # so that sentences end
        made.final_logits_bias[0, pad] += 9  # no search may choose PAD, however probable it is
    made.generation_config.bad_words_ids = [[pad]]
    made.save_pretrained(folder)
    return made
