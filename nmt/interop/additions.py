"""Adds languages and pieces to a model of several languages, when it is imported or when it was trained here."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch

from nmt import console
from nmt.checkpoint import Checkpoint, load_checkpoint
from nmt.config import SelectionConfig
from nmt.errors import NmtError
from nmt.interop.sentencepiece_model import changed, extended, missing_characters
from nmt.text.codec import Preparer, TextCodec
from nmt.text.corpus import read_lines
from nmt.text.languages import matching
from nmt.text.subword import Subword, processor_of

_BY_PIECE = {"target_embedding.weight", "output_bias"}  # weights that have a row or a number for each piece


def lines_of(files: Sequence[str]) -> Iterator[str]:
    """Yields the lines of all files."""
    return chain.from_iterable(map(read_lines, map(Path, files)))


class NewLanguage(NamedTuple):
    """A language that a model gets: its code, its token, and the token that this one begins as a copy of."""

    code: str
    token: str
    origin: str


def new_languages(pairs: Sequence[str], tokens: Mapping[str, str], names: Collection[str]) -> list[NewLanguage]:
    """Returns the new languages of `--add-language`.

    Args:
        pairs: the codes of a new language and of a related one, such as tyv_Cyrl=kaz_Cyrl.
        tokens: the token of each language of the model.
        names: the names of all pieces and tokens of the model.

    Raises:
        NmtError: a language is not new, its token has the name of a piece, or no related language is named.
    """
    new: dict[str, NewLanguage] = {}
    for pair in pairs:
        code, _, related = pair.partition("=")
        if not code.isprintable() or code.split() != [code] or code in tokens or code in new or "," in pair:
            raise NmtError(f"--add-language {pair} does not name a new language; give one such as tyv_Cyrl=kaz_Cyrl")
        if not related:
            raise NmtError(f"--add-language {pair} names no related language; give one such as tyv_Cyrl=kaz_Cyrl")
        related = matching(related, list(tokens))
        token = tokens[related].replace(related, code)
        if token in names:
            raise NmtError(f"--add-language {pair} needs the token {token}, but a piece of the model has this name")
        new[code] = NewLanguage(code, token, tokens[related])
    return list(new.values())


def with_new_pieces(
    model: bytes, selection: SelectionConfig, names: Iterable[str], prepare: Callable[[str], str] = str
) -> tuple[bytes, dict[str, list[str]]]:
    """Returns a sentencepiece model with the pieces of `--add-pieces`, and the pieces that each of them replaces.

    Args:
        names: tokens that the model has besides, whose names no piece gets.
        prepare: converts a raw line to what the model segments.
    """

    def text(files: Sequence[str]) -> Iterator[str]:
        return map(prepare, lines_of(files))

    given, unchanged = partial(text, selection.add_pieces), partial(text, selection.unchanged)
    characters = missing_characters(model, given(), selection.pieces, unchanged())
    if characters:
        console.info(f"{len(characters):,} new characters: {console.listed(list(characters))}")
    larger = changed(model, more=characters)
    merged = extended(larger, given(), selection.pieces - len(characters), unchanged(), names)
    console.info(f"{len(merged):,} new pieces: {console.listed(list(merged))}")
    larger = changed(larger, more=merged)
    before, after = processor_of(model), processor_of(larger)
    for file in dict.fromkeys([*selection.unchanged, *selection.pieces_of]):
        same = [before.encode(line) == after.encode(line) for line in text([file])]
        share = f"{sum(same) / max(1, len(same)):.2%} of {len(same):,} lines"
        console.info(f"{file}: {share} have the same pieces as before")
    of_merged = {
        piece: list(chain.from_iterable(characters.get(part, [part]) for part in parts))
        for piece, parts in merged.items()
    }
    return larger, characters | of_merged


def extended_checkpoint(path: str, selection: SelectionConfig) -> Checkpoint:
    """Returns a checkpoint with more languages and pieces; everything else stays as it is.

    A new piece begins as the mean of the pieces that it replaces.

    Raises:
        NmtError: the model translates one pair of languages only, nothing can be added to its vocabulary, or nothing is
            to be added.
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
    if not selection.add_language and not selection.add_pieces:
        raise NmtError("there is nothing to add; give --add-language or --add-pieces")
    tokens = dict(zip(text.languages, text.language_pieces, strict=True))
    languages = new_languages(selection.add_language, tokens, before.vocabulary)
    model = changed(before.model, control=[language.token for language in languages])
    replaced = {language.token: [language.origin] for language in languages}
    if selection.add_pieces:
        model, pieces = with_new_pieces(model, selection, [], Preparer(text, "target").prepare)
        replaced |= pieces
    tokens |= {language.code: language.token for language in languages}
    vocabulary = Subword(model, "bpe")
    new = vocabulary.vocabulary[len(before) :]
    weights = dict(checkpoint.weights)
    for name in _BY_PIECE & weights.keys():
        means = [weights[name][before.ids(replaced[piece])].float().mean(0) for piece in new]
        weights[name] = torch.cat((weights[name], *(mean[None].to(weights[name].dtype) for mean in means)))
    config = replace(text, languages=tuple(tokens), language_pieces=tuple(tokens.values()))
    # These pieces learn in full, whatever stays frozen when the model is tuned.
    provenance = checkpoint.provenance | {"added_pieces": [*checkpoint.provenance.get("added_pieces", ()), *new]}
    codec = TextCodec(config, vocabulary, vocabulary)
    return Checkpoint(checkpoint.model_config, codec, weights, provenance)
