"""The text processing of MarianMT folders: two sentencepiece models, and vocabularies for their pieces."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt.errors import NmtError
from nmt.exchange.files import read_bytes, read_json
from nmt.exchange.marian_config import POSITIONS
from nmt.exchange.settings import Settings
from nmt.exchange.vocabulary import SPECIAL_PIECES, Ids, ids_of
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.foreign import Mapped, SubwordModel, language_code
from nmt.text.subword import EOS, PAD, UNK, Subword

TOKENIZER_CONFIG = "tokenizer_config.json"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
MODELS = "source.spm", "target.spm"
# The key of config.json with what MarianMT does not have: the TextConfig and the ModelConfig of a checkpoint.
RECORD = "nmt"


@dataclass(frozen=True)
class MarianText:
    """The text processing of a folder.

    Attributes:
        source_ids, target_ids: the ids of the model.
    """

    codec: TextCodec
    source_ids: Ids
    target_ids: Ids


def read_text(
    folder: Path,
    config: Mapping[str, Any],
    sizes: tuple[int, int],
    langs: Mapping[str, str | None],
    *,
    shared: bool,
) -> MarianText:
    """Returns the text processing of a MarianMT folder.

    Args:
        config: the content of config.json.
        sizes: the numbers of source and target ids.
        langs: `source_lang` and `target_lang`; None if the folder says which.
        shared: whether both sides have the same embedding.

    Raises:
        NmtError: a file is missing or damaged, or the files do not fit together.
    """
    options = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    separate = options.get("separate_vocabs", False)
    if shared and separate:
        raise NmtError(f"{folder} has one embedding for two vocabularies; download it again")
    unknown = _token(options.get("unk_token", SPECIAL_PIECES[UNK]))
    files = folder / VOCABULARY, folder / (TARGET_VOCABULARY if separate else VOCABULARY)
    pieces = [_vocabulary(file, size) for file, size in zip(files, sizes, strict=True)]
    ids = [_ids(config, *side, unknown) for side in zip(pieces, sizes, files, strict=True)]
    text = _recorded(config, langs, folder)
    if text is None:
        text = _text_config(Settings(options, folder).languages(langs), pieces[0], folder, shared=shared)
    models = [
        _subword(folder / name, text.subword, of_side, names, file)
        for name, of_side, names, file in zip(MODELS, ids, pieces, files, strict=True)
    ]
    source, target = (models[0], models[0]) if text.one_model else models
    return MarianText(TextCodec.checked(text, source, target, str(folder)), *ids)


def _token(value: Any) -> Any:
    """Returns the text of a special token, which is stored as text or as an object with its content."""
    return value.get("content") if isinstance(value, dict) else value


def _vocabulary(path: Path, size: int) -> dict[int, str]:
    """Returns the piece of each id of a vocabulary.

    Raises:
        NmtError: an id is not below `size`, or two pieces have the same id.
    """
    ids = read_json(path)
    for piece, i in ids.items():
        if type(i) is not int or not 0 <= i < size:
            raise NmtError(
                f"{path} has the id {i!r:.40} for the piece {piece!r:.40}, but the model has {size:,} ids; "
                f"download both again"
            )
    if len(set(ids.values())) != len(ids):
        raise NmtError(f"{path} gives the same id to two pieces; download it again")
    return {i: piece for piece, i in ids.items()}


def _ids(config: Mapping[str, Any], pieces: Mapping[int, str], size: int, path: Path, unknown: Any) -> Ids:
    found = [i for i, piece in pieces.items() if piece == unknown]
    if not found:
        raise NmtError(f"{path} has no piece {unknown!r:.40} for unknown text; download it again")
    pad, start, eos = (config.get(f"{name}_token_id") for name in ("pad", "decoder_start", "eos"))
    return ids_of((pad, found[0], start, eos), size, str(path.parent / "config.json"))


def _recorded(config: Mapping[str, Any], langs: Mapping[str, str | None], folder: Path) -> TextConfig | None:
    """Returns the text processing that nmt recorded when it exported the folder; None for other models."""
    record = config.get(RECORD)
    if not isinstance(record, dict) or "text" not in record:
        return None
    text = TextConfig.from_dict(record["text"], str(folder / "config.json"))
    for name, given in langs.items():
        if given not in (None, recorded := getattr(text, name)):
            flag = f"--{name.replace('_', '-')}"
            raise NmtError(f"{flag} is {given}, but nmt exported {folder} with {recorded}; leave out {flag}")
    return text


def _text_config(langs: Mapping[str, str], pieces: Mapping[int, str], folder: Path, *, shared: bool) -> TextConfig:
    """Returns the text processing of a model that nmt did not export."""
    codes = [piece for _, piece in sorted(pieces.items()) if piece.split() == [piece] == [language_code(piece)]]
    values = {"source_tokenizer": "none", "target_tokenizer": "none", "normalize_punctuation": "none"}
    rest = {"lowercase": False, "subword": "marian", "joint_vocab": shared, "tags": codes}
    return TextConfig.from_dict({**langs, **values, **rest}, str(folder))


def _subword(path: Path, kind: str, ids: Ids, pieces: Mapping[int, str], vocabulary_path: Path) -> SubwordModel:
    model = read_bytes(path)
    if kind == "marian":
        vocabulary = ids.vocabulary(pieces, str(vocabulary_path))
        try:
            return Mapped(vocabulary, model, kind)
        except (ValueError, RuntimeError) as error:
            raise NmtError(f"{path} is not a sentencepiece model, or is damaged; download it again") from error
    subword = Subword.from_bytes(model, kind, str(path))
    if subword.pieces(list(range(len(subword)))) != [pieces.get(i) for i in ids.order]:
        raise NmtError(f"{path} and {vocabulary_path} have different pieces; export the model again")
    return subword


def write_text(codec: TextCodec, folder: Path) -> None:
    """Writes the files with which transformers' MarianTokenizer gives the same ids as the codec."""
    joint = codec.config.joint_vocab
    for subword, name in zip((codec.source, codec.target), MODELS, strict=True):
        (folder / name).write_bytes(subword.model)
    vocabularies = {VOCABULARY: codec.source} | ({} if joint else {TARGET_VOCABULARY: codec.target})
    for name, subword in vocabularies.items():
        pieces = subword.pieces(list(range(len(subword))))
        _write_json(folder / name, {piece: i for i, piece in enumerate(pieces)})
    unk, eos, pad = codec.source.pieces([UNK, EOS, PAD])
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": codec.config.source_lang,
        "target_lang": codec.config.target_lang,
        "unk_token": unk,
        "eos_token": eos,
        "pad_token": pad,
        "separate_vocabs": not joint,
        "model_max_length": POSITIONS,
    }
    _write_json(folder / TOKENIZER_CONFIG, options)


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
