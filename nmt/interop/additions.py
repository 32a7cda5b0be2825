"""Adds languages and pieces to a model of several languages, when it is imported or when it was trained here."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint
from nmt.config import SelectionConfig
from nmt.errors import NmtError
from nmt.interop.sentencepiece_model import changed, extended, missing_characters
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.languages import matching
from nmt.text.subword import Subword, processor_of

_EMBEDDING, _BIAS = "target_embedding.weight", "output_bias"


def lines_of(files: Sequence[str]) -> Iterator[str]:
    """Yields the lines of all files."""
    return chain.from_iterable(map(read_lines, map(Path, files)))


def new_language(pair: str, tokens: Mapping[str, str]) -> tuple[str, str, str]:
    """Returns the code and the token of a new language, and the language that it begins as.

    Args:
        pair: both codes, such as tyv_Cyrl=kaz_Cyrl.
        tokens: the token of each language of the model.
    """
    code, _, related = pair.partition("=")
    if not code.isprintable() or code.split() != [code] or code in tokens or "," in pair:
        raise NmtError(f"--add-language {pair} does not name a new language; give one such as tyv_Cyrl=kaz_Cyrl")
    related = matching(related, list(tokens))
    return code, tokens[related].replace(related, code), related


def with_new_pieces(model: bytes, selection: SelectionConfig) -> tuple[bytes, dict[str, list[str]]]:
    """Returns a sentencepiece model with the pieces of `--add-pieces`, and the pieces that each of them replaces."""
    text, unchanged = partial(lines_of, selection.add_pieces), partial(lines_of, selection.unchanged)
    characters = missing_characters(model, text(), selection.pieces, unchanged())
    if characters:
        console.info(f"{len(characters):,} new characters: {console.listed(list(characters))}")
    larger = changed(model, more=characters)
    merged = extended(larger, text(), selection.pieces - len(characters), unchanged())
    console.info(f"{len(merged):,} new pieces: {console.listed(list(merged))}")
    larger = changed(larger, more=merged)
    before, after = processor_of(model), processor_of(larger)
    for file in dict.fromkeys([*selection.unchanged, *selection.pieces_of]):
        same = [before.encode(line) == after.encode(line) for line in lines_of([file])]
        share = f"{sum(same) / max(1, len(same)):.2%} of {len(same):,} lines"
        console.info(f"{file}: {share} have the same pieces as before")
    of_merged = {
        piece: list(chain.from_iterable(characters.get(part, [part]) for part in parts))
        for piece, parts in merged.items()
    }
    return larger, characters | of_merged


def extended_checkpoint(path: str, selection: SelectionConfig) -> Checkpoint:
    """Returns a checkpoint with more languages and pieces; everything else stays as it is.

    The row of a new piece in the embedding is the mean of those that it replaces.

    Raises:
        NmtError: the model translates one pair of languages only, or nothing can be added to its vocabulary.
    """
    checkpoint = load_checkpoint(path, verify=True)
    text, before = checkpoint.codec.config, checkpoint.codec.target
    if not text.languages:
        raise NmtError(f"{path} translates {text.in_words} only; train a model of several (nmt preprocess --languages)")
    if not isinstance(before, Subword) or before.kind != "bpe" or checkpoint.codec.source is not before:
        raise NmtError(
            f"{path} has a vocabulary of the kind {text.subword}, which cannot be extended; take a model of the kind "
            f"bpe, or give these options to nmt import huggingface"
        )
    tokens = dict(zip(text.languages, text.language_pieces, strict=True))
    new_languages = [new_language(pair, tokens) for pair in selection.add_language]
    model, replaced = with_new_pieces(before.model, selection) if selection.add_pieces else (before.model, {})
    tokens |= {code: token for code, token, _ in new_languages}
    replaced |= {token: [tokens[related]] for _, token, related in new_languages}
    vocabulary = Subword(changed(model, control=list(tokens.values())), "bpe")
    ids = [before.ids(replaced[piece]) for piece in vocabulary.vocabulary[len(before) :]]
    if not ids:
        raise NmtError("there is nothing to add; give --add-language or --add-pieces")
    weights = dict(checkpoint.weights)
    rows_VD = weights[_EMBEDDING]
    means_VD = torch.stack([rows_VD[of_piece].float().mean(0) for of_piece in ids]).to(rows_VD.dtype)
    weights[_EMBEDDING] = torch.cat((rows_VD, means_VD))
    if _BIAS in weights:
        weights[_BIAS] = torch.cat((weights[_BIAS], weights[_BIAS].new_zeros(len(ids))))
    config = replace(text, languages=tuple(tokens), language_pieces=tuple(tokens.values()))
    # These pieces learn in full, whatever stays frozen when the model is tuned.
    provenance = checkpoint.provenance | {"added_pieces": vocabulary.vocabulary[len(before) :]}
    codec = TextCodec(config, vocabulary, vocabulary)
    return Checkpoint(checkpoint.model_config, codec, weights, provenance)
