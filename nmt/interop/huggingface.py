"""Imports MarianMT models of Hugging Face, such as those of Opus-MT, and exports checkpoints as such models."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt import __version__, console
from nmt.checkpoint import Checkpoint, Computed, build_model, whole
from nmt.config import ModelConfig, SelectionConfig, flag_name
from nmt.errors import NmtError
from nmt.interop.conversion import (
    POSITIONS,
    RAW_TEXT,
    SPECIAL_PIECES,
    ForeignVocabulary,
    Settings,
    Tensors,
    as_json,
    check_supported,
    foreign_vocabulary,
    their_embedding,
    their_settings,
    write_folder,
)
from nmt.interop.fairseq import from_fairseq, to_fairseq
from nmt.interop.foreign_files import (
    ADAPTER_CONFIG,
    CONFIG,
    GENERATION,
    SHARED,
    SOFTMAX,
    TOKENIZER,
    VOCABULARY,
    read_bytes,
    read_json,
    read_tensors,
    with_adapter,
)
from nmt.interop.model_card import Facts, marian_card, tags_in_other_pieces
from nmt.interop.multilingual import export_multilingual, import_multilingual
from nmt.text.codec import SubwordModel, TextCodec, TextConfig
from nmt.text.languages import MULTIPLE, english_name, matching
from nmt.text.mapped import Mapped, language_tokens
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword

# Files of a MarianMT model, and its tensors besides those of the layers.
_TARGET_VOCABULARY, _MODELS = "target_vocab.json", ("source.spm", "target.spm")
_SIDES = {"source": "model.encoder.embed_tokens.weight", "target": "model.decoder.embed_tokens.weight"}
_BIAS = "final_logits_bias"


def import_huggingface(
    folder: str, source_lang: str | None, target_lang: str | None, selection: SelectionConfig, base: str | None = None
) -> Checkpoint:
    """Returns the checkpoint of the model in a folder: of MarianMT, or of many languages.

    Args:
        source_lang, target_lang: the languages of a model of MarianMT; None if the folder has them.
        selection: for a model of many languages.
        base: the folder of the model, if `folder` has an adapter of PEFT.
    """
    path = Path(folder if base is None else base)
    if path.is_file():
        raise NmtError(f"{path} is a file; give the folder of the model")
    if base is None and (path / ADAPTER_CONFIG).exists():
        raise NmtError(f"{folder} has an adapter; give the folder of its model with --base")
    settings = Settings(read_json(path / CONFIG), path / CONFIG)
    kind = settings.values.get("model_type")
    if kind not in ("marian", "m2m_100"):
        experts = "a mixture of experts, which nmt does not have" if kind == "nllb-moe" else "of another type"
        raise NmtError(
            f"{settings.path} is for a model of type {kind!r:.40}, {experts}; choose one of type marian or m2m_100, "
            f"such as Opus-MT, M2M-100, NLLB-200 and SMaLL-100"
        )
    if settings.values.get("quantization_config") is not None:
        raise NmtError(f"{settings.path} has a quantization_config; choose the weights in 16 or 32 bits")
    stored, origin = read_tensors(path)
    values = stored if base is None else with_adapter(stored, Path(folder))
    tensors = Tensors(values, origin, CONFIG, "download both again")
    if kind == "m2m_100":
        if source_lang or target_lang:
            raise NmtError(f"{path} is a model of many languages; leave out --source-lang and --target-lang")
        return import_multilingual(settings, tensors, selection)
    if variants := selection.variants():
        unneeded = ", ".join(map(flag_name, variants))
        raise NmtError(f"{path} is a model of MarianMT, which stays as it is; leave out {unneeded}")
    return _import_marian(settings, tensors, {"source_lang": source_lang, "target_lang": target_lang}, folder)


def _import_marian(settings: Settings, tensors: Tensors, langs: Mapping[str, str | None], folder: str) -> Checkpoint:
    """Returns the checkpoint of a MarianMT model; `langs` are `source_lang` and `target_lang` as they were given."""
    settings.check_unused(_WITHOUT_EFFECT)
    activation = _ACTIVATIONS[settings.choice("activation_function", _ACTIVATIONS)]
    config = settings.model_config(settings.required("d_model"), settings.both_sides("ffn_dim"), activation=activation)
    size = settings.required("vocab_size")
    if settings.choice(_SHARING, [True, False], True):
        embeddings = [tensors.take(SHARED, (size, config.d_model))]
    else:
        sizes = size, settings.values.get("decoder_vocab_size", size)
        embeddings = [tensors.take(name, (n, config.d_model)) for name, n in zip(_SIDES.values(), sizes, strict=True)]
    codec, (source, target) = _read_text(settings, embeddings, langs)
    bias_1V = tensors.take(_BIAS, (1, target.size), torch.zeros(1, target.size))
    tensors.drop_copies([SOFTMAX, *_SIDES.values()], embeddings[-1], "use a model with tied embeddings")
    computed = from_fairseq(config, tensors, "model.")
    computed["target_embedding.weight"] = target.our_embedding(embeddings[-1])
    if len(embeddings) == 2:
        computed["source_embedding.weight"] = source.our_embedding(embeddings[0])
    weights = {name: whole(weight).float() for name, weight in computed.items()}
    weights["output_bias"] = target.our_bias(bias_1V[0].float())
    if not settings.values.get("scale_embedding", False):
        # The same model with embeddings that are multiplied by √d_model.
        scale, last = math.sqrt(config.d_model), f"decoder.{config.decoder_layers - 1}.feed_forward_residual.norm"
        factors = {"target_embedding.weight": 1 / scale, "source_embedding.weight": 1 / scale}
        factors |= {f"{last}.weight": scale, f"{last}.bias": scale}
        weights |= {name: weights[name] * factor for name, factor in factors.items() if name in weights}
    if (record := settings.recorded("model")) is not None:
        # A model that nmt exported gets back what MarianMT does not have, without zero biases that it did not have.
        recorded = ModelConfig.from_dict(record, str(settings.path))
        changes: dict[str, Any] = {"guided_alignment": recorded.guided_alignment}
        for option, pattern in {"attention_biases": r".*attention\..*\.bias", "output_bias": "output_bias"}.items():
            biases = {name for name in weights if re.fullmatch(pattern, name)}
            if not getattr(recorded, option) and not any(weights[name].any() for name in biases):
                changes[option] = False
                weights = {name: weight for name, weight in weights.items() if name not in biases}
        config = replace(config, **changes)
    generation = settings.path.with_name(GENERATION)
    for path, options in {settings.path: settings.values, generation: read_json(generation, {})}.items():
        if options.get("forced_bos_token_id") is not None:
            forced = f"{path} has a forced_bos_token_id, with which transformers begins every translation"
            console.warn(f"{forced}; give its piece to nmt generate with --prefixes")
            break
    provenance = {"nmt": __version__, "imported": {"format": "huggingface", "folder": folder}}
    checkpoint = Checkpoint(config, codec, weights, provenance)
    build_model(checkpoint, folder)  # checks that the weights fit
    return checkpoint


def export_huggingface(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`, which transformers loads as a MarianMT model, or as one of many languages."""
    config, codec = checkpoint.model_config, checkpoint.codec
    if codec.config.subword == "sentencepiece":
        export_multilingual(checkpoint, origin, output, facts)
        return
    check_supported(config, origin, "MarianMT")
    check_text(codec, origin, "MarianMT")
    weights = checkpoint.weights
    bias_1V = weights.get("output_bias", torch.zeros(len(codec.target)))[None]
    tensors: dict[str, Tensor | Computed] = {**to_fairseq(config, weights, "model."), _BIAS: bias_1V}
    for side, name in (_SIDES if "source_embedding.weight" in weights else {"target": SHARED}).items():
        embedding_VD = weights[f"{side}_embedding.weight"]
        tensors[name] = their_embedding(embedding_VD, range(len(embedding_VD)))
    write_folder(output, marian_files(config, codec), tensors, partial(marian_card, checkpoint, origin, facts))
    if tags := tags_in_other_pieces(codec.config):
        note = f"{origin} has the tags {' '.join(tags)}, which MarianTokenizer turns into other pieces"
        console.warn(f"{note}; see README.md in {output} for the right ids")


def check_text(codec: TextCodec, origin: str, toolkit: str) -> None:
    """Raises an error unless MarianTokenizer segments text as the codec does; `toolkit` is its user, for messages."""
    kind = codec.config.subword
    if codec.config.languages and kind != "marian":
        advice = "export it with --format ctranslate2, or translate with nmt generate"
        raise NmtError(f"{toolkit} has no tokens of languages as {origin} needs them; {advice}")
    if kind not in ("bpe", "unigram", "marian"):
        kinds = f"{toolkit} segments text with sentencepiece, but {origin} has a {kind} vocabulary"
        raise NmtError(f"{kinds}; translate with nmt generate")


def marian_files(config: ModelConfig, codec: TextCodec) -> dict[str, bytes]:
    """Returns the files of a MarianMT model for its settings, and for a MarianTokenizer that gives the codec's ids."""
    tokens = zip(("unk", "bos", "eos", "pad"), codec.source.pieces([UNK, BOS, EOS, PAD]), strict=True)
    text = codec.config
    tokenizer = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": text.source_lang,
        "target_lang": text.target_lang,
        **{f"{name}_token": piece for name, piece in tokens},
        "separate_vocabs": not text.joint_vocab,
        "model_max_length": POSITIONS,
    }
    more = {
        "model_type": "marian",
        _SHARING: text.joint_vocab,
        "vocab_size": len(codec.source),
        "decoder_vocab_size": len(codec.target),
        "forced_eos_token_id": EOS,
        "dtype": "float32",
        "nmt": {"text": text.to_dict(), "model": config.to_dict()},
    }
    files = their_settings(config, "MarianMTModel", _SPECIAL_IDS, [PAD, BOS], **more) | {TOKENIZER: as_json(tokenizer)}
    separate = {} if text.joint_vocab else {_TARGET_VOCABULARY: codec.target}
    for name, subword in ({VOCABULARY: codec.source} | separate).items():
        files[name] = as_json({piece: i for i, piece in enumerate(subword.vocabulary)})
    return files | {name: subword.model for name, subword in zip(_MODELS, (codec.source, codec.target), strict=True)}


# Our name of each activation. swish and silu are the same function.
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_SHARING = "share_encoder_decoder_embeddings"
# Settings that nmt does not have, and the values that change nothing.
_WITHOUT_EFFECT = dict.fromkeys(("normalize_before", "normalize_embedding", "add_final_layer_norm"), False)
_WITHOUT_EFFECT |= dict.fromkeys(("static_position_embeddings", "tie_word_embeddings"), True)
# The special ids of an exported model, by their names in config.json and generation_config.json.
_SPECIAL_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "decoder_start_token_id": BOS, "eos_token_id": EOS}


def _read_text(
    settings: Settings, embeddings: Sequence[Tensor], langs: Mapping[str, str | None]
) -> tuple[TextCodec, list[ForeignVocabulary]]:
    """Returns the text processing of a MarianMT folder, and the vocabularies of both sides."""
    folder, shared = settings.path.parent, len(embeddings) == 1
    options = Settings(read_json(folder / TOKENIZER, {}), folder)
    separate = options.values.get("separate_vocabs", False)
    if shared and separate:
        raise NmtError(f"{folder} has one embedding for two vocabularies; download it again")
    unknown = options.values.get("unk_token", SPECIAL_PIECES[UNK])
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    files = folder / VOCABULARY, folder / (_TARGET_VOCABULARY if separate else VOCABULARY)
    sides = [
        foreign_vocabulary(settings, file, read_json(file), len(embedding_VD), unknown)
        for file, embedding_VD in zip(files, (embeddings[0], embeddings[-1]), strict=True)
    ]
    if (record := settings.recorded("text")) is not None:
        text = TextConfig.from_dict(record, str(settings.path))
        for name, given in langs.items():
            if given not in (None, lang := getattr(text, name)):
                flag = flag_name(name)
                raise NmtError(f"{flag} is {given}, but nmt exported {folder} with {lang}; leave out {flag}")
    else:
        tokens = language_tokens(piece for _, piece in sorted(sides[0].pieces.items()))
        values: dict[str, Any] = {**options.languages(langs), "tags": tokens} if len(tokens) < 2 else {}
        values = values or _targets(options, langs, tokens)
        text = TextConfig.from_dict(RAW_TEXT | values | {"subword": "marian", "joint_vocab": shared}, str(folder))
    models = [
        _subword(folder / name, text.subword, vocabulary, file)
        for name, vocabulary, file in zip(_MODELS, sides, files, strict=True)
    ]
    source, target = (models[0], models[0]) if text.one_model else models
    return TextCodec.checked(text, source, target, str(folder)), sides


def _targets(options: Settings, langs: Mapping[str, str | None], tokens: Sequence[str]) -> dict[str, Any]:
    """Returns the languages of a model that translates into several."""
    if langs["target_lang"] is not None:
        advice = "leave out --target-lang here, and name one when you translate"
        raise NmtError(f"{options.path} translates into several languages; {advice}")
    languages = [token.removeprefix(">>").removesuffix("<<") for token in tokens]
    source = langs["source_lang"] or str(options.values.get("source_lang"))
    directions: list[str] = []
    if langs["source_lang"] or english_name(source) != source:  # the folder may name a group, such as roa or ROMANCE
        with suppress(NmtError):  # the model does not translate into it
            source = matching(source, languages)
        directions += [f"{source} {language}" for language in languages if language != source]
    named = {"source_lang": MULTIPLE, "target_lang": MULTIPLE, "languages": languages, "language_pieces": tokens}
    return named | {"placement": "target_on_source", "directions": directions}


def _subword(path: Path, kind: str, vocabulary: ForeignVocabulary, vocabulary_path: Path) -> SubwordModel:
    model = read_bytes(path)
    if kind == "marian":
        try:
            return Mapped(vocabulary.our_pieces(str(vocabulary_path)), model, kind)
        except (ValueError, RuntimeError) as error:
            raise NmtError(f"{path} is not a sentencepiece model, or is damaged; download it again") from error
    subword = Subword.from_bytes(model, kind, str(path))
    if subword.vocabulary != [vocabulary.pieces.get(i) for i in vocabulary.order]:
        raise NmtError(f"{path} and {vocabulary_path} have different pieces; export the model again")
    return subword
