"""Random models of many languages in the format of Hugging Face: M2M-100, NLLB-200 and SMaLL-100."""

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece
import torch
import transformers  # loads its models only when a test writes one
from marian import mixed_lines

NLLB_LANGUAGES = ["ace_Arab", "deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant"]


@cache
def bpe_model() -> bytes:
    """Returns a sentencepiece model of the kind and with the normalisation of NLLB-200 and M2M-100."""
    model = io.BytesIO()
    options: dict[str, Any] = {"model_type": "bpe", "vocab_size": 1200, "minloglevel": 2, "num_threads": 1}
    lines = iter(mixed_lines(1000, 1))
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=model, **options)
    return model.getvalue()


def bpe_pieces() -> list[str]:
    """Returns the pieces with an id in Hugging Face before those of languages."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=bpe_model())
    return ["<s>", "<pad>", "</s>", "<unk>", *processor.id_to_piece(list(range(3, len(processor))))]


def write_nllb(folder: Path, **options: Any) -> "transformers.M2M100ForConditionalGeneration":
    """Writes a model with the layout of NLLB-200, and the tokenizer.json that transformers saves; returns the model.

    Behind the pieces come the languages, <mask>, and two rows without a piece.
    """
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(bpe_model())
    tokens = {"tokenizer_class": "NllbTokenizer", "extra_special_tokens": NLLB_LANGUAGES}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
    transformers.NllbTokenizer.from_pretrained(folder).save_pretrained(folder)
    (folder / "sentencepiece.bpe.model").unlink()
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    first = len(tokenizer["model"]["vocab"])  # transformers 5 would give <mask> this id
    order = [*NLLB_LANGUAGES, "<mask>"]
    for token in tokenizer["added_tokens"]:
        token["id"] = first + order.index(token["content"]) if token["content"] in order else token["id"]
    tokenizer["added_tokens"].sort(key=lambda token: token["id"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return write_weights(folder, first + len(order) + 2, **options)


def write_m2m(folder: Path, *, small: bool = False, **options: Any) -> "transformers.M2M100ForConditionalGeneration":
    """Writes a model with the layout of M2M-100 or SMaLL-100; returns the model. The languages are not listed."""
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(bpe_model())
    special, rest = bpe_pieces()[:4], bpe_pieces()[4:]
    pieces = [*special, *sorted(rest)]  # the ids of M2M-100 are not in the order of its sentencepiece model
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
    name = "SMALL100Tokenizer" if small else "M2M100Tokenizer"
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, "num_madeup_words": 8}))
    return write_weights(folder, len(pieces) + 100 + 8, **options)


def write_weights(
    folder: Path, vocab_size: int, dtype: torch.dtype = torch.float32, **options: Any
) -> "transformers.M2M100ForConditionalGeneration":
    """Writes a random model whose outputs differ from sentence to sentence, and returns it."""
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 1, "max_position_embeddings": 64}
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 48)
    sizes |= dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4)
    torch.manual_seed(0)
    config = transformers.M2M100Config(vocab_size=vocab_size, **{**sizes, **options})
    model = transformers.M2M100ForConditionalGeneration(config).eval()
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, 1.0 if "norm.weight" in name else 0.0, 0.1 if "shared" in name else 0.5)
    with torch.no_grad():
        model.model.shared.weight[2] *= 5  # so that outputs end
        model.model.shared.weight[[1, 3]] *= 0.1  # no search may choose PAD or UNK, however probable they are
    model.generation_config.bad_words_ids = [[1], [3]]
    model.to(dtype).save_pretrained(folder)
    return model
