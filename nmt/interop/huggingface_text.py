"""Reads and writes the text processing of models of Hugging Face: tokenizers, vocabularies and languages."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.config import SelectionConfig, flag_name, names_in
from nmt.errors import NmtError
from nmt.files import read_bytes
from nmt.interop.conversion import POSITIONS, ForeignVocabulary, Languages, Settings, as_json, foreign_vocabulary
from nmt.interop.fairseq import FIRST_PIECES
from nmt.interop.foreign_files import ADVICE, read_json
from nmt.interop.marian import target_languages
from nmt.interop.sentencepiece_model import (
    SENTENCEPIECE_MODEL,
    changed,
    from_tokenizer_json,
    needed_pieces,
    nllb_tokenizer_json,
)
from nmt.interop.vocabulary_extension import new_languages, with_new_pieces
from nmt.text.codec import SubwordModel, TextCodec
from nmt.text.corpus import read_lines
from nmt.text.languages import MULTIPLE, english_name, matching
from nmt.text.mapped import SPECIAL_PIECES, Mapped, language_code_pieces
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword, processor_of
from nmt.text.text_config import RAW_TEXT, Placement, TextConfig

_Json = Mapping[str, Any]
# The files of a tokenizer.
_TOKENIZER, FAST_TOKENIZER, _VOCABULARY = "tokenizer_config.json", "tokenizer.json", "vocab.json"
_TARGET_VOCABULARY, _MODELS = "target_vocab.json", ("source.spm", "target.spm")
_SPECIAL, _ADDED = "special_tokens_map.json", "added_tokens.json"
# The keys of lists of tokens, which have the ids behind the vocabulary.
_LISTS = "additional_special_tokens", "extra_special_tokens"
# The languages of M2M-100 and SMaLL-100 in the order of their ids. Their tokenizer need not list them.
_M2M_CODES = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy "
    "id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru "
    "sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
_UNUSED = re.compile("<unused [0-9]+>")  # rows without a piece

# What of the text processing a model of many languages learnt in nmt.
_LEARNT = ("term_pieces", "context", "context_piece", "similar_piece", "endings")


def check_text(codec: TextCodec, origin: str, toolkit: str) -> None:
    """Raises an error unless MarianTokenizer segments text as the codec does; `toolkit` is its user, for messages."""
    kind = codec.config.subword
    if codec.config.languages and kind != "marian":
        advice = "use nmt export ctranslate2, or translate with nmt generate"
        raise NmtError(f"{toolkit} has no tokens of languages as {origin} needs them; {advice}")
    if kind not in ("bpe", "unigram", "char", "marian"):
        kinds = f"{toolkit} segments text with sentencepiece, but {origin} has a {kind} vocabulary"
        raise NmtError(f"{kinds}; translate with nmt generate")


def marian_tokenizer(codec: TextCodec) -> dict[str, bytes]:
    """Returns the files for a MarianTokenizer that gives the codec's ids."""
    tokens = zip(("unk", "bos", "eos", "pad"), codec.source.pieces([UNK, BOS, EOS, PAD]), strict=True)
    text = codec.config
    options = {
        "tokenizer_class": "MarianTokenizer", "source_lang": text.source_lang, "target_lang": text.target_lang,
        **{f"{name}_token": piece for name, piece in tokens},
        "separate_vocabs": not text.joint_vocab, "model_max_length": POSITIONS,
    }  # fmt: skip
    sides = {_VOCABULARY: codec.source} | ({} if text.joint_vocab else {_TARGET_VOCABULARY: codec.target})
    files = {name: as_json({piece: i for i, piece in enumerate(side.vocabulary)}) for name, side in sides.items()}
    return files | {_TOKENIZER: as_json(options), _MODELS[0]: codec.source.model, _MODELS[1]: codec.target.model}


def read_marian_text(
    settings: Settings, embeddings: Sequence[Tensor], langs: Languages
) -> tuple[TextCodec, list[ForeignVocabulary]]:
    """Returns the text processing of a MarianMT folder, and the vocabularies of both sides."""
    folder, shared = settings.path.parent, len(embeddings) == 1
    options = Settings(read_json(folder / _TOKENIZER, {}), folder)
    separate = options.values.get("separate_vocabs", False)
    unknown = options.values.get("unk_token", SPECIAL_PIECES[UNK])
    unknown = unknown.get("content") if isinstance(unknown, dict) else unknown
    files = folder / _VOCABULARY, folder / (_TARGET_VOCABULARY if separate else _VOCABULARY)
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
        tokens = language_code_pieces(piece for _, piece in sorted(sides[0].pieces.items()))
        if len(tokens) < 2:
            values: dict[str, Any] = {**options.languages(langs), "tags": tokens}
        else:
            stated = str(options.values.get("source_lang"))  # perhaps the name of a group, such as roa or ROMANCE
            source_lang = langs["source_lang"] or (stated if english_name(stated) != stated else None)
            values = target_languages(tokens, source_lang, langs["target_lang"], folder)
        text = TextConfig.from_dict(RAW_TEXT | values | {"subword": "marian", "joint_vocab": shared}, str(folder))
    models = [
        _subword(folder / name, text.subword, vocabulary, file)
        for name, vocabulary, file in zip(_MODELS, sides, files, strict=True)
    ]
    source, target = (models[0], models[0]) if text.one_model else models
    return TextCodec.checked(text, source, target, str(folder)), sides


def _subword(path: Path, kind: str, vocabulary: ForeignVocabulary, vocabulary_path: Path) -> SubwordModel:
    model = read_bytes(path, ADVICE)
    if kind == "marian":
        try:
            return Mapped(vocabulary.our_pieces(str(vocabulary_path)), model, kind)
        except (ValueError, RuntimeError) as error:
            raise NmtError(f"{path} is not a sentencepiece model, or is damaged; download it again") from error
    subword = Subword.from_bytes(model, kind, str(path))
    if subword.vocabulary != [vocabulary.pieces.get(i) for i in vocabulary.order]:
        raise NmtError(f"{path} and {vocabulary_path} have different pieces; export the model again")
    return subword


def read_multilingual_text(
    settings: Settings, size: int, selection: SelectionConfig
) -> tuple[TextCodec, ForeignVocabulary]:
    """Returns the text processing in the folder of a model of many languages, and its vocabulary."""
    folder = settings.path.parent
    options, fast = read_json(folder / _TOKENIZER, {}), read_json(folder / FAST_TOKENIZER, {})
    path = folder / SENTENCEPIECE_MODEL
    if not fast and not path.exists():
        raise NmtError(f"{folder} has neither {path.name} nor {FAST_TOKENIZER}; download the model again")
    model = read_bytes(path, ADVICE) if path.exists() else from_tokenizer_json(fast, folder / FAST_TOKENIZER)
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
        needed |= {*added, *FIRST_PIECES}
        dropped |= {i for piece, i in ids.items() if piece not in needed}
    if selection.add_pieces:
        model, new = with_new_pieces(model, selection, {*added, *tokens.values()})
        means |= {piece: [ids[part] for part in parts] for piece, parts in new.items()}
    if dropped:  # rows without a piece, too
        dropped |= set(range(size)) - vocabulary.pieces.keys()
    vocabulary = replace(vocabulary, dropped=dropped, means=means)
    directions = tuple(each for each in recorded.get("directions", ()) if tokens.keys() >= set(each.split()))
    text = TextConfig(
        source_lang=MULTIPLE, target_lang=MULTIPLE, **RAW_TEXT, subword="sentencepiece", joint_vocab=True,
        languages=tuple(tokens), language_pieces=tuple(tokens.values()), placement=placement, directions=directions,
    )  # fmt: skip
    learnt = TextConfig.from_dict(
        text.to_dict() | {name: recorded[name] for name in _LEARNT if name in recorded}, str(path)
    )
    if set(learnt.marks) <= {piece for piece, i in ids.items() if i not in dropped}:
        text = learnt
    subword = Mapped(vocabulary.our_pieces(str(path)), model, "sentencepiece")
    return TextCodec(text, subword, subword), vocabulary


def _vocabulary(folder: Path, fast: _Json, model: bytes) -> tuple[dict[str, int], Path]:
    """Returns the id of each piece of a tokenizer without its added tokens, and the file that has them."""
    if (path := folder / _VOCABULARY).exists():
        return read_json(path), path
    if fast:
        return dict(fast["model"]["vocab"]), folder / FAST_TOKENIZER
    processor = processor_of(model)
    pieces = [*FIRST_PIECES, *processor.id_to_piece(list(range(3, len(processor))))]
    return {piece: i for i, piece in enumerate(pieces)}, folder / SENTENCEPIECE_MODEL


def _added_tokens(folder: Path, options: _Json, fast: _Json, ids: Mapping[str, int]) -> dict[str, int]:
    """Returns the ids of the tokens that a tokenizer has besides its vocabulary, such as those of languages."""
    added: dict[str, int] = {token["content"]: token["id"] for token in fast.get("added_tokens", [])}
    added |= {token["content"]: int(i) for i, token in options.get("added_tokens_decoder", {}).items()}
    added |= read_json(folder / _ADDED, {})
    added = {token: i for token, i in added.items() if token not in FIRST_PIECES}
    files = options, read_json(folder / _SPECIAL, {})
    tokens = chain.from_iterable(values.get(key) or () for values in files for key in _LISTS)
    names = [token["content"] if isinstance(token, dict) else token for token in tokens]
    if not added and not names and (folder / _VOCABULARY).exists():
        names = [f"__{code}__" for code in _M2M_CODES.split()]
    new = (token for token in dict.fromkeys(names) if token not in added and token not in ids)
    return added | {token: i for i, token in enumerate(new, start=len(ids) + len(added.keys() - ids.keys()))}


def _placement(folder: Path, options: _Json) -> Placement:
    if options.get("legacy_behaviour"):
        return "behind_source"
    is_small100 = "small100" in str(options.get("tokenizer_class")).lower()
    return "target_on_source" if is_small100 or (folder / "tokenization_small100.py").exists() else "both_sides"


def multilingual_tokenizer(codec: TextCodec, pieces: Sequence[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """Returns the files of M2M100Tokenizer or NllbTokenizer with these ids, and what it calls each language."""
    text, tokens = codec.config, codec.config.language_pieces
    ids = {piece: i for i, piece in enumerate(pieces) if not _UNUSED.fullmatch(piece)}
    is_legacy = text.placement == "behind_source"
    is_m2m = list(text.languages) == _M2M_CODES.split() and ids[tokens[0]] == len(ids) - len(tokens) and not is_legacy
    names = text.languages if is_m2m else tokens  # NllbTokenizer has no codes, but tokens
    options: dict[str, Any] = {"tokenizer_class": "M2M100Tokenizer" if is_m2m else "NllbTokenizer"}
    options |= {"additional_special_tokens": list(tokens), "legacy_behaviour": is_legacy, "src_lang": names[0]}
    files = {_TOKENIZER: json.dumps(options).encode()}
    if is_m2m:
        vocabulary = {piece: i for piece, i in ids.items() if piece not in tokens}
        files[_VOCABULARY] = json.dumps(vocabulary, ensure_ascii=False).encode()
        files[SENTENCEPIECE_MODEL] = codec.target.model
    else:
        special = {token: ids[token] for token in (*FIRST_PIECES, *tokens, "<mask>") if token in ids}
        files[FAST_TOKENIZER] = nllb_tokenizer_json(ids, special, codec.target.model)
    return files, dict(zip(text.languages, names, strict=True))
