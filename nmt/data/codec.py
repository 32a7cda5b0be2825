"""Makes the codec of a data folder: its tokenisation, and the subword models, trained on a sample of the text."""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from nmt import console
from nmt.config import DataConfig, names_in
from nmt.data.raw_pairs import Corpus, RawPairs, augmented_pairs, cased_targets, raw_pairs, useful_workers
from nmt.errors import NmtError
from nmt.files import loading
from nmt.jobs.pool import map_in_order
from nmt.jobs.source import Plan
from nmt.text.codec import Preparer, Side, TextCodec
from nmt.text.corpus import read_lines, read_rows
from nmt.text.directions import Direction
from nmt.text.forms import endings_of
from nmt.text.languages import CHINESE, MULTIPLE, base_language, listed_codes
from nmt.text.subword import UNK, Subword
from nmt.text.terms import EDGES
from nmt.text.text_config import CONTEXT_PIECE, SIMILAR_PIECE, TERM_PIECES, TextConfig

_Row = TypeVar("_Row", bound=tuple[Any, ...])


def sample(rows: Iterable[_Row], total: int, wanted: int, seed: int) -> Iterator[_Row]:
    """Yields a uniform sample of `wanted` of the `total` rows, in order (Knuth, TAOCP 2, §3.4.2, algorithm S)."""
    draw = random.Random(seed)
    for seen, row in enumerate(islice(rows, total)):
        if (total - seen) * draw.random() < wanted:
            wanted -= 1
            yield row


def text_config(config: DataConfig) -> TextConfig:
    """Returns how the text of the data folder is processed."""
    languages = tuple(names_in(config.languages)) if config.languages else ()
    langs = (MULTIPLE, MULTIPLE) if languages else config.pairs[0]
    tokenizers = [f"moses-{base_language(lang)}" if config.tokenizer == "moses" else "none" for lang in langs]
    options = config.to_dict()
    values = {field.name: options[field.name] for field in fields(TextConfig) if field.name in options}
    values |= {"source_lang": langs[0], "target_lang": langs[1], "languages": languages, "directions": ()}
    values |= {"source_tokenizer": tokenizers[0], "target_tokenizer": tokenizers[1]}
    text = TextConfig(
        **values,
        tags=tuple(dict.fromkeys(tag for tag in config.tag if tag)),
        language_pieces=tuple(f"<2{lang}>" for lang in languages),
        placement=config.language_tokens,
        term_pieces=TERM_PIECES if config.terms else (),
        context_piece=CONTEXT_PIECE if config.context else None,
        similar_piece=SIMILAR_PIECE if config.similar else None,
    )
    if taken := [tag for tag in text.tags if tag in (*text.language_pieces, *text.marks)]:
        raise NmtError(f"--tag {taken[0]} is the name of a special piece; choose another")
    return text


def show_tokenizers(text: TextConfig) -> None:
    """Logs on one line how the text of each side is tokenised."""
    if text.languages:
        return  # as it is
    sides = [(text.source_lang, text.source_tokenizer), (text.target_lang, text.target_tokenizer)]
    tokenizers = ", ".join(f"{lang} {tokenizer}" for lang, tokenizer in sides)
    normalized = f"; --normalize-punctuation {text.normalize_punctuation}" if text.has_moses else ""
    console.info(f"tokenisation: {tokenizers}{normalized}")


def make_codec(config: DataConfig, text: TextConfig, plan: Plan, train: Sequence[Corpus]) -> TextCodec:
    """Returns the codec. Its subword model is read from --subword-model or trained on a sample of the text."""
    both: tuple[Side, Side] = ("source", "target")
    if not config.joint_vocab:
        return TextCodec(text, *(_train_model(config, text, plan, train, (side,)) for side in both))
    if config.subword_model:
        model = _load_model(config.subword_model, config.subword, text)
    else:
        # Each file of a model of several languages is sampled once, as a source.
        model = _train_model(config, text, plan, train, ("source",) if text.languages else both)
    return TextCodec(text, model, model)


def source_endings(config: DataConfig, plan: Plan, train: Sequence[Corpus]) -> tuple[str, ...]:
    """Returns the pairs of endings that the words of a sample of the source lines exchange."""
    rows = sample(
        chain.from_iterable(read_rows(*corpus.paths) for corpus in train), plan.rows, config.subword_sample, config.seed
    )
    words = {word.strip(EDGES) for source, _ in rows for word in source.split()}
    return tuple("/".join(pair) for pair in sorted(endings_of(words)))


def _load_model(path: str, kind: str, text: TextConfig) -> Subword:
    flag = f"--subword-model {path}"
    with loading(flag, "check the path"):
        model = Subword.from_bytes(Path(path).read_bytes(), kind, flag)
    # The pieces of any model can be segmented greedily, as wordpiece does.
    if kind == "bpe" and model.has_probabilities:
        raise NmtError(f"{flag} is a unigram model; give --subword unigram")
    if kind == "char":
        raise NmtError(f"{flag} has pieces, but --subword is char; leave out one of them")
    if kind == "unigram" and not model.has_probabilities:
        raise NmtError(f"{flag} is not a unigram model; leave out --subword unigram")
    if not model.has_bytes:
        console.warn(f"{flag} was trained without byte_fallback; characters that have no piece will be lost")
    needed = {"--tag": text.tags, "--languages or --subword-model": text.language_pieces}
    for flags, pieces in (needed | {"--terms, --context and --similar": text.marks}).items():
        if unknown := [piece for piece in pieces if model.ids([piece]) == [UNK]]:
            raise NmtError(f"{flag} has no piece {unknown[0]}; leave out {flags}")
    return model


def _train_model(
    config: DataConfig, text: TextConfig, plan: Plan, train: Sequence[Corpus], sides: tuple[Side, ...]
) -> Subword:
    """Trains a subword model on a sample of one side or of both."""
    pairs = plan.rows
    if text.languages:
        sampled, chunks = _sample_of_files(config, text, plan, train)
        named = listed_codes(text.languages)
        pairs_of_files = zip(train, plan.segments, strict=True)
        segments = [segment for corpus, segment in pairs_of_files if not corpus.direction.is_copy]
        files = {frozenset((a.digest, b.digest)): a.lines for a, b, *_ in segments}  # the same in both directions
        pairs = sum(files.values())
    else:
        sampled = min(plan.rows, config.subword_sample)
        named = " and ".join(text.source_lang if side == "source" else text.target_lang for side in sides)
        rows = chain.from_iterable(read_rows(*corpus.paths) for corpus in train)
        chunks = raw_pairs(sample(rows, plan.rows, sampled, config.seed))
    size = config.vocab_size or usual_vocab_size(config, pairs)
    pieces = "" if config.subword == "char" else f" of {size:,} pieces"
    suited = "" if config.vocab_size or not pieces else ", which suit the size of the corpus (--vocab-size),"
    console.info(f"Training a {config.subword} model{pieces}{suited} on {sampled:,} lines of {named}")
    if config.augment:
        chunks = map(partial(augmented_pairs, seed=config.seed, text=text), chunks)
    workers = useful_workers(config.processes, sampled) if text.has_moses else 1
    with closing(map_in_order(partial(_preparer, text, sides), chunks, workers, preload=__name__)) as prepared:
        lines, symbols = chain.from_iterable(prepared), _read_symbols(config.symbols) if config.symbols else []
        tags = text.tags if "source" in sides else ()
        may_be_smaller = config.vocab_size is None or bool(symbols)
        marks = [*text.language_pieces, *(text.marks if "source" in sides else ())]
        return Subword.train(lines, config.subword, size, symbols, tags, marks, may_be_smaller)


def usual_vocab_size(config: DataConfig, pairs: int) -> int:
    """Returns the pieces that suit a corpus: 2,000 for 3,000 pairs, 10,000 for 30,000, the paper's 37,000 for 4.5M."""
    has_many_characters = any(base_language(lang) in {*CHINESE, "ja", "ko"} for pair in config.pairs for lang in pair)
    share, most = pairs / 30_000, 37_000
    size = round(10_000 * min(share**0.7, share**0.26), -3)
    return most if config.subword == "char" else int(min(max(size, 4000 if has_many_characters else 1000), most))


def _sample_of_files(
    config: DataConfig, text: TextConfig, plan: Plan, train: Sequence[Corpus]
) -> tuple[int, Iterator[RawPairs]]:
    """Returns the number of lines of a sample of all training files, and the lines: each with itself as its target.

    Files have shares by their numbers of lines. Several directions may have a file, whose text counts once.
    """
    files = {
        file.digest: (file, lang)
        for corpus, segment in zip(train, plan.segments, strict=True)
        for file, lang in zip(segment[:2], corpus.direction, strict=True)
    }
    total = sum(file.lines for file, _ in files.values())
    share = min(1.0, config.subword_sample * len(text.languages) / total)

    def chunks() -> Iterator[RawPairs]:
        for file, lang in files.values():
            copies = ((line, line) for line in read_lines(file.path))
            sampled = sample(copies, file.lines, math.ceil(share * file.lines), config.seed)
            yield from raw_pairs(sampled, direction=Direction(lang, lang))

    return sum(math.ceil(share * file.lines) for file, _ in files.values()), chunks()


def _read_symbols(path: str) -> list[str]:
    symbols: dict[str, None] = {}
    for line, symbol in enumerate(read_lines(path), start=1):
        if symbol.split() != [symbol] or symbol in symbols:
            raise NmtError(f"--symbols {path}, line {line}: {symbol!r} is not a new word; write one on each line")
        symbols[symbol] = None
    return list(symbols)


def _preparer(text: TextConfig, sides: tuple[Side, ...], _worker: int) -> Callable[[RawPairs], list[str]]:
    """Returns a function that prepares the lines of these sides of pairs for the subword model."""
    preparers = {side: Preparer(text, side) for side in sides}

    def prepare(pairs: RawPairs) -> list[str]:
        source = [text.cased_for(line, direction=pairs.direction) for _, line in map(text.split_tags, pairs.source)]
        lines = {"source": source, "target": cased_targets(pairs, text)}
        return [preparer.prepare(line) for side, preparer in preparers.items() for line in lines[side]]

    return prepare
