"""Imports models of many languages of Hugging Face: M2M-100, NLLB-200 and SMaLL-100; and exports such models."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.checkpoint import Checkpoint
from nmt.config import SelectionConfig, names_in
from nmt.errors import NmtError
from nmt.interop.conversion import (
    RAW_TEXT,
    ForeignVocabulary,
    Settings,
    Tensors,
    check_supported,
    foreign_vocabulary,
    their_embedding,
    their_settings,
    write_folder,
)
from nmt.interop.fairseq import FIRST_PIECES, from_fairseq, to_fairseq
from nmt.interop.foreign_files import EMBEDDINGS, FAST_TOKENIZER, SHARED, TOKENIZER, VOCABULARY, read_bytes, read_json
from nmt.interop.model_card import AGAIN, Facts, example_codec, model_card
from nmt.interop.sentencepiece_model import changed, needed_pieces
from nmt.interop.tokenizer_json import SENTENCEPIECE_MODEL, nllb_tokenizer_json, sentencepiece_model
from nmt.interop.vocabulary_extension import new_languages, with_new_pieces
from nmt.text.codec import Placement, TextCodec, TextConfig
from nmt.text.corpus import read_lines
from nmt.text.languages import MULTIPLE, matching
from nmt.text.mapped import Mapped
from nmt.text.subword import BOS, EOS, PAD, UNK, processor_of

# The files of a model's text processing.
_SPECIAL, _ADDED = "special_tokens_map.json", "added_tokens.json"
# The keys of lists of tokens, which have the ids behind the vocabulary.
_LISTS = "additional_special_tokens", "extra_special_tokens"
# The languages of M2M-100 and SMaLL-100 in the order of their ids. Their tokenizer need not list them.
_M2M_CODES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
# Settings that nmt does not have, and the values that change nothing.
_WITHOUT_EFFECT = dict.fromkeys(("normalize_embedding", "add_bias_logits"), False)
_WITHOUT_EFFECT |= dict.fromkeys(("normalize_before", "add_final_layer_norm", "static_position_embeddings"), True)
_WITHOUT_EFFECT |= dict.fromkeys(("tie_word_embeddings", "scale_embedding"), True)
_ARCHITECTURE = {"norm": "pre", "sinusoids": "fairseq", "bos_is_eos": True}
# Their BOS in our vocabulary, and rows without a piece.
_RENAMED_BOS, _UNUSED = "<<s>>", re.compile("<unused [0-9]+>")
_OFFSET = 2  # the row of the first position in stored sinusoids


def import_multilingual(settings: Settings, tensors: Tensors, selection: SelectionConfig) -> Checkpoint:
    """Returns the checkpoint of an M2M100ForConditionalGeneration, whose weights are computed when it is written."""
    folder = settings.path.parent
    settings.check_unused(_WITHOUT_EFFECT)
    d_model, d_ff = settings.required("d_model"), settings.both_sides("ffn_dim")
    activation = settings.choice("activation_function", ["relu", "gelu"], "relu")
    config = settings.model_config(d_model, d_ff, activation=activation, output_bias=False, **_ARCHITECTURE)
    stored = next((name for name in EMBEDDINGS if name in tensors), SHARED)
    embedding_VD = tensors.take(stored, (settings.required("vocab_size"), config.d_model))
    tensors.drop_copies(EMBEDDINGS, embedding_VD, "use a model with tied embeddings")
    try:
        codec, vocabulary = _read_text(settings, len(embedding_VD), selection)
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        why = f"{folder} does not have the files of a tokenizer as transformers writes them ({error!r:.100})"
        raise NmtError(f"{why}; download them again") from error
    weights = from_fairseq(config, tensors, "model.", _OFFSET)
    weights["target_embedding.weight"] = vocabulary.our_embedding(embedding_VD)
    provenance: dict[str, Any] = {"nmt": __version__, "imported": {"format": "huggingface", "folder": str(folder)}}
    if vocabulary.means:  # these learn in full, whatever stays frozen when the model is tuned
        provenance["added_pieces"] = list(vocabulary.means)
    return Checkpoint(config, codec, {}, provenance, computed=weights)


def _read_text(settings: Settings, size: int, selection: SelectionConfig) -> tuple[TextCodec, ForeignVocabulary]:
    """Returns the text processing of a folder, and its vocabulary."""
    folder = settings.path.parent
    options, fast = read_json(folder / TOKENIZER, {}), read_json(folder / FAST_TOKENIZER, {})
    path = folder / SENTENCEPIECE_MODEL
    if not fast and not path.exists():
        raise NmtError(f"{folder} has neither {path.name} nor {FAST_TOKENIZER}; download the model again")
    model = read_bytes(path) if path.exists() else sentencepiece_model(fast, folder / FAST_TOKENIZER)
    ids, path = _vocabulary(folder, fast, model)
    added = _added_tokens(folder, options, fast, ids)
    vocabulary = foreign_vocabulary(settings, path, ids | added, size, FIRST_PIECES[-1])
    tokens = {
        token.strip("_") if token.startswith("__") else token: token
        for token in sorted(added, key=lambda token: added[token])
        if not re.fullmatch("<.*>|madeupword.*", token)
    }
    if not tokens:
        raise NmtError(f"{folder} lists no languages; add the {_SPECIAL} or {FAST_TOKENIZER} of the model")
    recorded = settings.recorded("text") or {}
    placement = selection.language_tokens
    if placement == "auto":
        placement = recorded.get("placement") or _placement(folder, options)
    new_tokens, copied = new_languages(selection.add_language, tokens, {*ids, *added})
    means = {token: [added[origin]] for token, origin in copied.items()}
    dropped = set[int]()
    if selection.languages:
        languages = [matching(code, list(tokens)) for code in names_in(selection.languages)]
        dropped |= {added[tokens.pop(code)] for code in tokens.keys() - languages}
    tokens |= new_tokens
    if selection.pieces_of:
        needed = needed_pieces(model, chain.from_iterable(map(read_lines, selection.pieces_of)))
        model = changed(model, kept=needed)
        dropped |= {i for piece, i in ids.items() if piece not in needed | added.keys() | {*FIRST_PIECES}}
    if selection.add_pieces:
        model, new = with_new_pieces(model, selection, {*added, *tokens.values()})
        means |= {piece: [ids[part] for part in parts] for piece, parts in new.items()}
    if dropped:  # rows without a piece, too
        dropped |= set(range(size)) - vocabulary.pieces.keys()
    vocabulary = replace(vocabulary, dropped=dropped, means=means)
    text = TextConfig(
        source_lang=MULTIPLE,
        target_lang=MULTIPLE,
        **RAW_TEXT,
        subword="sentencepiece",
        joint_vocab=True,
        languages=tuple(tokens),
        language_pieces=tuple(tokens.values()),
        placement=placement,
        directions=tuple(each for each in recorded.get("directions", ()) if tokens.keys() >= set(each.split())),
    )
    subword = Mapped(vocabulary.our_pieces(str(path)), model, "sentencepiece")
    return TextCodec(text, subword, subword), vocabulary


def _vocabulary(folder: Path, fast: Mapping[str, Any], model: bytes) -> tuple[dict[str, int], Path]:
    """Returns the id of each piece of a tokenizer without its added tokens, and the file that has them."""
    if (path := folder / VOCABULARY).exists():
        ids = read_json(path)
        if sorted(ids.values()) != list(range(len(ids))):
            wrong = f"{path} does not give the ids from 0 to {len(ids) - 1:,} to one piece each"
            raise NmtError(f"{wrong}; download it again")
        return ids, path
    if fast:
        return dict(fast["model"]["vocab"]), folder / FAST_TOKENIZER
    processor = processor_of(model)
    pieces = [*FIRST_PIECES, *processor.id_to_piece(list(range(3, len(processor))))]
    return {piece: i for i, piece in enumerate(pieces)}, folder / SENTENCEPIECE_MODEL


def _added_tokens(
    folder: Path, options: Mapping[str, Any], fast: Mapping[str, Any], ids: Mapping[str, int]
) -> dict[str, int]:
    """Returns the ids of the tokens that a tokenizer has besides its vocabulary, such as those of languages."""
    added: dict[str, int] = {token["content"]: token["id"] for token in fast.get("added_tokens", [])}
    added |= {token["content"]: int(i) for i, token in options.get("added_tokens_decoder", {}).items()}
    added |= read_json(folder / _ADDED, {})
    added = {token: i for token, i in added.items() if token not in FIRST_PIECES}
    files = options, read_json(folder / _SPECIAL, {})
    tokens = chain.from_iterable(values.get(key) or () for values in files for key in _LISTS)
    names = [token["content"] if isinstance(token, dict) else token for token in tokens]
    if not added and not names and (folder / VOCABULARY).exists():
        names = [f"__{code}__" for code in _M2M_CODES.split()]
    new = (token for token in dict.fromkeys(names) if token not in added and token not in ids)
    return added | {token: i for i, token in enumerate(new, start=len(ids) + len(added.keys() - ids.keys()))}


def _placement(folder: Path, options: Mapping[str, Any]) -> Placement:
    if options.get("legacy_behaviour"):
        return "behind_source"
    is_small100 = "small100" in str(options.get("tokenizer_class")).lower()
    return "target_on_source" if is_small100 or (folder / "tokenization_small100.py").exists() else "both_sides"


def export_multilingual(checkpoint: Checkpoint, origin: str, output: str, facts: Facts) -> None:
    """Writes the folder `output`, which transformers loads as an M2M100ForConditionalGeneration.

    Its tokenizer is M2M100Tokenizer for the languages of M2M-100, otherwise NllbTokenizer.
    """
    config, codec, text = checkpoint.model_config, checkpoint.codec, checkpoint.codec.config
    check_supported(config, origin, "M2M-100", list(_ARCHITECTURE))
    if config.output_bias or any(getattr(config, name) != value for name, value in _ARCHITECTURE.items()):
        raise NmtError(f"{origin} does not have the architecture of M2M-100; export it with --format ctranslate2")
    pieces = codec.target.vocabulary
    first = pieces.index(_RENAMED_BOS) if _RENAMED_BOS in pieces else BOS
    order = [first, PAD, EOS, UNK, *(i for i in range(EOS + 1, len(pieces)) if i != first)]
    tensors = to_fairseq(config, checkpoint.weights, "model.")
    embedding_VD = checkpoint.weights["target_embedding.weight"]
    tensors[SHARED] = their_embedding(embedding_VD, order)
    in_order = [*FIRST_PIECES, *(pieces[i] for i in order[len(FIRST_PIECES) :])]
    ids = {piece: i for i, piece in enumerate(in_order) if not _UNUSED.fullmatch(piece)}
    ids_by_name = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    more = {"model_type": "m2m_100", "vocab_size": len(order), "nmt": {"text": text.to_dict()}}
    more |= {"dtype": str(embedding_VD.dtype).removeprefix("torch.")}
    files = their_settings(config, "M2M100ForConditionalGeneration", ids_by_name, [1, 3], **more)
    tokens, is_legacy = text.language_pieces, text.placement == "behind_source"
    is_m2m = list(text.languages) == _M2M_CODES.split() and ids[tokens[0]] == len(ids) - len(tokens) and not is_legacy
    names = text.languages if is_m2m else tokens  # NllbTokenizer has no codes, but tokens
    options = {
        "tokenizer_class": "M2M100Tokenizer" if is_m2m else "NllbTokenizer",
        "additional_special_tokens": list(tokens),
        "legacy_behaviour": is_legacy,
        "src_lang": names[0],
    }
    if is_m2m:
        vocabulary = {piece: i for piece, i in ids.items() if piece not in tokens}
        files[VOCABULARY] = json.dumps(vocabulary, ensure_ascii=False).encode()
        files[SENTENCEPIECE_MODEL] = codec.target.model
    else:
        special = {token: ids[token] for token in (*FIRST_PIECES, *tokens, "<mask>") if token in ids}
        files[FAST_TOKENIZER] = nllb_tokenizer_json(ids, special, codec.target.model)
    files[TOKENIZER] = json.dumps(options).encode()
    use = _use(checkpoint, dict(zip(text.languages, names, strict=True)))
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
