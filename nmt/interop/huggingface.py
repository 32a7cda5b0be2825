"""Imports models of Hugging Face, and exports checkpoints as such models.

They are models of MarianMT, such as those of Opus-MT, or of many languages: M2M-100, NLLB-200 and SMaLL-100.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt import __version__, console
from nmt.checkpoint import Checkpoint, Computed, build_model, materialized
from nmt.config import Facts, ModelConfig, SelectionConfig, flag_name
from nmt.errors import NmtError
from nmt.interop.adapter import ADAPTER_CONFIG, with_adapter
from nmt.interop.conversion import (
    Languages,
    Settings,
    Tensors,
    check_supported,
    their_embedding,
    their_settings,
    write_folder,
)
from nmt.interop.fairseq import FIRST_PIECES, from_fairseq, to_fairseq
from nmt.interop.foreign_files import CONFIG, EMBEDDINGS, GENERATION, SHARED, SOFTMAX, read_json, read_tensors
from nmt.interop.huggingface_text import (
    check_text,
    marian_tokenizer,
    multilingual_tokenizer,
    read_marian_text,
    read_multilingual_text,
)
from nmt.interop.model_card import AGAIN, example_codec, marian_card, model_card, tags_in_other_pieces
from nmt.text.codec import TextCodec
from nmt.text.subword import BOS, EOS, PAD, UNK

# Settings that nmt does not have, and the values that change nothing, by the type of the model.
_WITHOUT_EFFECT: dict[str, dict[str, bool]] = {
    "marian": {
        "normalize_before": False, "normalize_embedding": False, "add_final_layer_norm": False,
        "static_position_embeddings": True, "tie_word_embeddings": True,
    },
    "m2m_100": {
        "normalize_embedding": False, "add_bias_logits": False, "normalize_before": True, "scale_embedding": True,
        "add_final_layer_norm": True, "static_position_embeddings": True, "tie_word_embeddings": True,
    },
}  # fmt: skip
# MarianMT: our name of each activation, the tensors besides those of the layers, and the special ids of an
# exported model by their names in its files. swish and silu are the same function.
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_SHARING = "share_encoder_decoder_embeddings"
_SIDES = {"source": EMBEDDINGS[1], "target": EMBEDDINGS[2]}
_BIAS = "final_logits_bias"
_SPECIAL_IDS = {"pad_token_id": PAD, "bos_token_id": BOS, "decoder_start_token_id": BOS, "eos_token_id": EOS}
# Models of many languages: their BOS in our vocabulary, and the row of the first position in stored sinusoids.
_ARCHITECTURE = {"norm": "pre", "sinusoids": "fairseq", "bos_is_eos": True}
_RENAMED_BOS, _OFFSET = "<<s>>", 2


def import_huggingface(
    folder: str, languages: Languages, selection: SelectionConfig, base: str | None = None
) -> Checkpoint:
    """Returns the checkpoint of the model in a folder: of MarianMT, or of many languages.

    Args:
        languages: for a model of MarianMT.
        selection: for a model of many languages.
        base: the folder of the model, if `folder` has an adapter of PEFT.
    """
    path = Path(folder if base is None else base)
    if base is None and (path / ADAPTER_CONFIG).exists():
        raise NmtError(f"{folder} has an adapter; give the folder of its model with --base")
    settings, kind = read_settings(path)
    stored, origin = read_tensors(path)
    values = stored if base is None else with_adapter(stored, Path(folder))
    tensors = Tensors(values, origin, CONFIG, "download both again")
    folders = {"folder": folder} if base is None else {"folder": folder, "model_folder": base}
    provenance: dict[str, Any] = {"nmt": __version__, "imported": {"format": "huggingface", **folders}}
    if kind == "m2m_100":
        if any(languages.values()):
            raise NmtError(f"{path} is a model of many languages; leave out --source-lang and --target-lang")
        return _import_multilingual(settings, tensors, selection, provenance)
    if variants := selection.variants():
        unneeded = ", ".join(map(flag_name, variants))
        raise NmtError(f"{path} is a model of MarianMT, which stays as it is; leave out {unneeded}")
    return _import_marian(settings, tensors, languages, folder, provenance)


def read_settings(folder: Path) -> tuple[Settings, str]:
    """Returns the settings in a folder and the type of its model, which must be one that nmt can represent."""
    settings = Settings(read_json(folder / CONFIG), folder / CONFIG)
    kind = str(settings.values.get("model_type"))
    if kind not in _WITHOUT_EFFECT:
        problem = f"{settings.path} is for a model of type {kind!r:.40}, which nmt does not have"
        raise NmtError(f"{problem}; choose one such as Opus-MT, M2M-100, NLLB-200 and SMaLL-100")
    for name, value in {"quantization_config": None, **_WITHOUT_EFFECT[kind]}.items():
        settings.choice(name, [value], value)
    return settings, kind


def _import_marian(
    settings: Settings, tensors: Tensors, languages: Languages, folder: str, provenance: dict[str, Any]
) -> Checkpoint:
    """Returns the checkpoint of a MarianMT model."""
    activation = _ACTIVATIONS[settings.choice("activation_function", _ACTIVATIONS)]
    config = settings.model_config(settings.required("d_model"), settings.both_sides("ffn_dim"), activation=activation)
    size = settings.required("vocab_size")
    if settings.choice(_SHARING, [True, False], True):
        sizes = {SHARED: size}
    else:
        sizes = {_SIDES["source"]: size, _SIDES["target"]: settings.values.get("decoder_vocab_size", size)}
    embeddings = [materialized(tensors.take(name, (rows, config.d_model))) for name, rows in sizes.items()]
    codec, (source, target) = read_marian_text(settings, embeddings, languages)
    bias_1V = materialized(tensors.take(_BIAS, (1, target.size), torch.zeros(1, target.size)))
    tensors.drop_copies([SOFTMAX, *_SIDES.values()], embeddings[-1], "use a model with tied embeddings")
    computed = from_fairseq(config, tensors, "model.")
    computed["target_embedding.weight"] = target.our_embedding(embeddings[-1])
    if len(embeddings) == 2:
        computed["source_embedding.weight"] = source.our_embedding(embeddings[0])
    weights = {name: materialized(weight).float() for name, weight in computed.items()}
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
    generation = read_json(settings.path.with_name(GENERATION), {})
    if any(options.get("forced_bos_token_id") is not None for options in (settings.values, generation)):
        forced = f"{folder} has a forced_bos_token_id, with which transformers begins every translation"
        console.warn(f"{forced}; give its piece to nmt generate with --prefixes")
    checkpoint = Checkpoint(config, codec, weights, provenance)
    build_model(checkpoint, folder)  # checks that the weights fit
    return checkpoint


def _import_multilingual(
    settings: Settings, tensors: Tensors, selection: SelectionConfig, provenance: dict[str, Any]
) -> Checkpoint:
    """Returns the checkpoint of an M2M100ForConditionalGeneration, whose weights are computed when it is written."""
    folder = settings.path.parent
    d_model, d_ff = settings.required("d_model"), settings.both_sides("ffn_dim")
    activation = settings.choice("activation_function", ["relu", "gelu"], "relu")
    settings.choice("decoder_start_token_id", [settings.required("eos_token_id")], settings.required("eos_token_id"))
    config = settings.model_config(d_model, d_ff, activation=activation, output_bias=False, **_ARCHITECTURE)
    stored = next((name for name in EMBEDDINGS if name in tensors), SHARED)
    embedding_VD = materialized(tensors.take(stored, (settings.required("vocab_size"), config.d_model)))
    tensors.drop_copies(EMBEDDINGS, embedding_VD, "use a model with tied embeddings")
    try:
        codec, vocabulary = read_multilingual_text(settings, len(embedding_VD), selection)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        why = f"{folder} does not have the files of a tokenizer as transformers writes them ({error!r:.100})"
        raise NmtError(f"{why}; download them again") from error
    if (record := settings.recorded("model")) is not None:
        config = replace(config, guided_alignment=ModelConfig.from_dict(record, str(settings.path)).guided_alignment)
    weights = from_fairseq(config, tensors, "model.", _OFFSET)
    weights["target_embedding.weight"] = vocabulary.our_embedding(embedding_VD)
    # These learn in full, whatever stays frozen when the model is tuned.
    added = {"added_pieces": list(vocabulary.means)} if vocabulary.means else {}
    return Checkpoint(config, codec, {}, {**provenance, **added}, computed=weights)


def export_huggingface(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`, which transformers loads as a MarianMT model, or as one of many languages."""
    if checkpoint.codec.config.subword == "sentencepiece":
        _export_multilingual(checkpoint, origin, output, facts)
        return
    config, codec, weights = checkpoint.model_config, checkpoint.codec, checkpoint.weights
    check_supported(config, origin, "MarianMT")
    check_text(codec, origin, "MarianMT")
    bias_1V = weights.get("output_bias", torch.zeros(len(codec.target)))[None]
    tensors: dict[str, Tensor | Computed] = {**to_fairseq(config, weights), _BIAS: bias_1V}
    for side, name in (_SIDES if "source_embedding.weight" in weights else {"target": SHARED}).items():
        embedding_VD = weights[f"{side}_embedding.weight"]
        tensors[name] = their_embedding(embedding_VD, range(len(embedding_VD)))
    write_folder(output, marian_files(config, codec), tensors, partial(marian_card, checkpoint, origin, facts))
    if tags := tags_in_other_pieces(codec.config):
        note = f"{origin} has the tags {' '.join(tags)}, which MarianTokenizer turns into other pieces"
        console.warn(f"{note}; see README.md in {output} for the right ids")


def marian_files(config: ModelConfig, codec: TextCodec) -> dict[str, bytes]:
    """Returns the files of a MarianMT model for its settings, and for a MarianTokenizer that gives the codec's ids."""
    more = {
        "model_type": "marian", _SHARING: codec.config.joint_vocab, "vocab_size": len(codec.source),
        "decoder_vocab_size": len(codec.target), "forced_eos_token_id": EOS, "dtype": "float32",
        "nmt": {"text": codec.config.to_dict(), "model": config.to_dict()},
    }  # fmt: skip
    return their_settings(config, "MarianMTModel", _SPECIAL_IDS, [PAD, BOS], **more) | marian_tokenizer(codec)


def _export_multilingual(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`, which transformers loads as an M2M100ForConditionalGeneration."""
    config, codec = checkpoint.model_config, checkpoint.codec
    check_supported(config, origin, "M2M-100", list(_ARCHITECTURE))
    if config.output_bias or any(getattr(config, name) != value for name, value in _ARCHITECTURE.items()):
        raise NmtError(f"{origin} does not have the architecture of M2M-100; use nmt export ctranslate2")
    pieces = codec.target.vocabulary
    first = pieces.index(_RENAMED_BOS) if _RENAMED_BOS in pieces else BOS
    order = [first, PAD, EOS, UNK, *(i for i in range(EOS + 1, len(pieces)) if i != first)]
    tensors = to_fairseq(config, checkpoint.weights)
    embedding_VD = checkpoint.weights["target_embedding.weight"]
    tensors[SHARED] = their_embedding(embedding_VD, order)
    tokenizer, names = multilingual_tokenizer(codec, [*FIRST_PIECES, *(pieces[i] for i in order[len(FIRST_PIECES) :])])
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    more = {"model_type": "m2m_100", "vocab_size": len(order)}
    more["nmt"] = {"text": codec.config.to_dict(), "model": config.to_dict()}
    more |= {"dtype": str(embedding_VD.dtype).removeprefix("torch.")}
    files = their_settings(config, "M2M100ForConditionalGeneration", ids, [ids["pad_token_id"]], **more) | tokenizer
    use = _use(checkpoint, names)
    write_folder(output, files, tensors, partial(model_card, checkpoint, origin, use, facts, again=AGAIN))


def _use(checkpoint: Checkpoint, names: Mapping[str, str]) -> str:
    """Returns how to translate with an exported model, for its card; `names` are what its tokenizer calls languages."""
    text = example_codec(checkpoint).config
    source, target = text.source_lang, text.target_lang
    given = "" if text.placement == "target_on_source" else ", forced_bos_token_id=language"
    lines = [
        "from transformers import AutoTokenizer, M2M100ForConditionalGeneration",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained(".", src_lang="{names.get(source, names[target])}")',
        'model = M2M100ForConditionalGeneration.from_pretrained(".")',
        f'language = tokenizer.convert_tokens_to_ids("{text.language_pieces[text.languages.index(target)]}")',
        f'batch = tokenizer(["…"], return_tensors="pt", padding=True)  # sentences in {source}',
        *(["batch.input_ids[:, 0] = language"] if not given else []),
        f"print(tokenizer.batch_decode(model.generate(**batch{given}), skip_special_tokens=True))",
    ]
    return "\n".join(["```python", *lines, "```"])
