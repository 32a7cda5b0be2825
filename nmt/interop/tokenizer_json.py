"""Writes tokenizer.json, the format of the `tokenizers` library, which transformers.js reads.

It gives the ids of the codec for sentencepiece models of the kind bpe. A model of the kind unigram cannot spell
characters without a piece in transformers.js, which gives them the unknown piece. An imported MarianMT
model has one vocabulary for two sentencepiece models. Its scores are those of the source model.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from nmt.interop.sentencepiece_model import protobuf, scores_of
from nmt.text.codec import TextCodec
from nmt.text.subword import EOS, UNK, processor_of

_SPACE = "▁"
# Added pieces are never split. Decoding drops special pieces.
_ADDED = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
# The steps from pieces to text: ▁ becomes a space, and bytes become characters.
_DECODERS = [
    {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
]


def tokenizer_json(codec: TextCodec) -> str:
    """Returns the file for a codec whose languages share a vocabulary."""
    pieces = codec.source.vocabulary
    processor = processor_of(codec.source.model)
    ids = [i for i in range(len(processor)) if not processor.is_control(i) and not processor.is_byte(i)]
    scores = {processor.id_to_piece(i): float(processor.get_score(i)) for i in ids}
    if codec.config.subword == "bpe":
        model = _bpe(pieces, scores)
    else:
        # Pieces that only the target model has get a score so low that they do not take part in the segmentation.
        rows = [[piece, scores.get(piece, -1e4 if i > EOS else 0.0)] for i, piece in enumerate(pieces)]
        model = {"type": "Unigram", "unk_id": UNK, "byte_fallback": True, "vocab": rows}
    eos = pieces[EOS]
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    end = {"SpecialToken": {"id": eos, "type_id": 0}}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": pieces[i], **_ADDED, "special": i <= EOS}
            for i in (*range(EOS + 1), *codec.source.ids([*codec.config.tags, *codec.config.language_pieces]))
        ],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(codec.source.model)},
        "pre_tokenizer": {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "never", "split": True},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end],
            "pair": [first, second, end],
            "special_tokens": {eos: {"id": eos, "ids": [EOS], "tokens": [eos]}},
        },
        "decoder": {"type": "Sequence", "decoders": _DECODERS},
        "model": model,
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def nllb_tokenizer_json(vocabulary: dict[str, int], added: Mapping[str, int], model: bytes) -> str:
    """Returns the file for a sentencepiece model of the kind bpe, in the form that transformers has for NLLB-200.

    Args:
        added: the ids of special tokens.
    """
    scores = scores_of(processor_of(model))
    space = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True}
    rules = [step for step in _normalizers(model) if step["type"] == "Precompiled"]
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    content = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": piece, **_ADDED, "special": True} for piece, i in added.items()],
        "normalizer": {"type": "Sequence", "normalizers": [*rules, spaces]},
        "pre_tokenizer": space,
        "decoder": space,
        "model": _bpe(list(vocabulary), scores) | {"unk_token": "<unk>", "byte_fallback": False, "vocab": vocabulary},
    }
    return json.dumps(content, ensure_ascii=False) + "\n"


def _normalizers(model: bytes) -> list[dict[str, Any]]:
    """Returns what a sentencepiece model does to text before it segments it."""
    spec = protobuf().ModelProto.FromString(model).normalizer_spec
    steps: list[dict[str, Any]] = []
    if spec.precompiled_charsmap:
        rules = base64.b64encode(spec.precompiled_charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if spec.remove_extra_whitespaces:
        # Only U+0020 counts as a space, while the normaliser "Strip" would also remove others.
        spaces = {f"^ +|[ {_SPACE}]+$": "", " +": " "}
        steps += [{"type": "Replace", "pattern": {"Regex": p}, "content": c} for p, c in spaces.items()]
    if spec.add_dummy_prefix:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    return steps


def _bpe(pieces: list[str], scores: Mapping[str, float]) -> dict[str, Any]:
    """Returns a model that merges as sentencepiece does: the adjacent pieces whose union has the best score first."""
    merged = sorted((piece for piece in scores if len(piece) > 1), key=lambda piece: (-scores[piece], piece))
    merges = [
        [piece[:i], piece[i:]]
        for piece in merged
        for i in range(1, len(piece))
        if piece[:i] in scores and piece[i:] in scores
    ]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    options = {"unk_token": pieces[UNK], "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    return {"type": "BPE", "dropout": None, **options, "vocab": vocabulary, "merges": merges}
