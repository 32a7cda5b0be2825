"""Reads the text to preprocess, and makes the codec of a data folder."""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args

from nmt import console
from nmt.config import DataConfig, Tokenizer
from nmt.data.folder import TRAIN
from nmt.errors import NmtError
from nmt.jobs.plan import File, Plan, make_plan
from nmt.jobs.pool import in_order
from nmt.text.codec import Preparer, Side, TextCodec, TextConfig
from nmt.text.corpus import parallel_paths, read_lines, read_pairs, read_rows
from nmt.text.moses import MOSES, base_language, look_swapped
from nmt.text.subword import UNK, Subword
from nmt.text.words import parse_pharaoh

_Pair = TypeVar("_Pair")
CHUNK_PAIRS = 2000
_CHUNK_CHARACTERS = 1 << 20  # bounds the memory of chunks whose lines are as long as books


@dataclass(frozen=True)
class Corpus:
    """The two files of one corpus, and the number of lines in each."""

    source: Path
    target: Path
    pairs: int
    alignments: Path | None = None
    tag: str = ""


class Chunk(NamedTuple):
    """The raw lines of some sentence pairs.

    Attributes:
        alignments: the word alignments of the pairs; blank lines if they have none.
        tags: the tag of each source line; empty if it has none.
        first: the number of the first pair in the text, from 0.
    """

    source: list[str]
    target: list[str]
    alignments: list[str]
    tags: list[str]
    first: int = 0


def split_prefixes(config: DataConfig) -> dict[str, tuple[str, ...]]:
    """Returns the prefixes of the corpora of every split. The test splits are called test, test1, test2, …"""
    tests = {f"test{i or ''}": (prefix,) for i, prefix in enumerate(config.test)}
    return {TRAIN: config.train, "valid": (config.valid,), **tests}


def check(config: DataConfig, plan: Plan) -> dict[str, list[Corpus]]:
    """Returns the corpora of every split."""
    langs = config.source_lang, config.target_lang
    if config.valid in config.train:
        console.warn(f"--valid {config.valid} is also --train; so validation is no measure of quality")
    others = {name: prefixes for name, prefixes in split_prefixes(config).items() if name != TRAIN}
    files = {
        name: make_plan([list(map(str, parallel_paths(prefix, *langs))) for prefix in prefixes], sys.maxsize).segments
        for name, prefixes in others.items()
    }
    splits = {
        name: [_checked(source, target, langs) for source, target, *_ in segments]
        for name, segments in ({TRAIN: plan.segments} | files).items()
    }
    if config.alignments:
        splits[TRAIN] = [
            replace(corpus, alignments=_checked_alignments(corpus, Path(path)))
            for corpus, path in zip(splits[TRAIN], config.alignments, strict=True)
        ]
    splits[TRAIN] = [
        replace(corpus, tag=tag) for corpus, tag in zip(splits[TRAIN], config.tag or repeat(""), strict=False)
    ]
    return splits


def _checked(source: File, target: File, langs: tuple[str, str]) -> Corpus:
    """Returns the corpus of two files. Warns if they look swapped or hold the same text."""
    if not source.lines:
        raise NmtError(f"{source.path} and {target.path} have no lines; give another corpus or check how it was made")
    corpus = Corpus(Path(source.path), Path(target.path), source.lines)
    first = next(chunked(read_corpora([corpus])))
    if look_swapped(first.source, first.target, *langs):
        console.warn(
            f"{source.path} looks like {langs[1]}, and {target.path} looks like {langs[0]}; check whether "
            f"--source-lang and --target-lang are swapped"
        )
    if source.digest == target.digest:
        console.warn(
            f"{source.path} and {target.path} contain the same text; check whether one is in the wrong language"
        )
    return corpus


def _checked_alignments(corpus: Corpus, path: Path) -> Path:
    """Returns the path of a corpus's alignments after checking each line of the file."""
    for number, (source, target, line) in enumerate(read_rows(corpus.source, corpus.target, path), start=1):
        try:
            alignments = parse_pharaoh(line)
        except ValueError as error:
            raise NmtError(f"{path}, line {number}: {error}; give links such as 0-0 1-2") from error
        words = [len(text.split()) for text in (source, target)]
        for link in alignments:
            if link[0] >= words[0] or link[1] >= words[1]:
                raise NmtError(
                    f"{path}, line {number} links word {link[0]} to word {link[1]}, but the sentences have {words[0]} "
                    f"and {words[1]} words, counted from 0 and separated by spaces; align the raw text"
                )
    return path


def read_corpora(corpora: Iterable[Corpus]) -> Iterator[tuple[str, str, str, str]]:
    """Yields the sentence pairs of all corpora in order, each with its word alignment and its tag."""
    for corpus in corpora:
        alignments = repeat("") if corpus.alignments is None else read_lines(corpus.alignments)
        for (source, target), linked in zip(read_pairs(corpus.source, corpus.target), alignments, strict=False):
            yield source, target, linked, corpus.tag


def chunked(pairs: Iterable[tuple[str, str, str, str]], first: int = 0) -> Iterator[Chunk]:
    """Yields the pairs in chunks. A chunk ends when it reaches a number of pairs or of characters."""
    chunk, characters = Chunk([], [], [], [], first), 0
    for source, target, alignments, tag in pairs:
        chunk.source.append(source)
        chunk.target.append(target)
        chunk.alignments.append(alignments)
        chunk.tags.append(tag)
        characters += len(source) + len(target)
        if len(chunk.source) >= CHUNK_PAIRS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = Chunk([], [], [], [], chunk.first + len(chunk.source)), 0
    if chunk.source:
        yield chunk


def sample(pairs: Iterable[_Pair], total: int, wanted: int, seed: int) -> Iterator[_Pair]:
    """Yields a uniform sample of `wanted` of the `total` pairs, in order (Knuth, TAOCP 2, §3.4.2, algorithm S)."""
    draw = random.Random(seed)
    for seen, pair in enumerate(islice(pairs, total)):
        if (total - seen) * draw.random() < wanted:
            wanted -= 1
            yield pair


def text_config(config: DataConfig) -> TextConfig:
    """Returns how the text of the data folder is processed; --tokenizer auto is decided for each language."""
    return TextConfig(
        source_lang=config.source_lang,
        target_lang=config.target_lang,
        source_tokenizer=_tokenizer(config.tokenizer, config.source_lang),
        target_tokenizer=_tokenizer(config.tokenizer, config.target_lang),
        normalize_punctuation=config.normalize_punctuation,
        lowercase=config.lowercase,
        subword=config.subword,
        joint_vocab=config.joint_vocab,
        tags=tuple(dict.fromkeys(tag for tag in config.tag if tag)),
    )


def _tokenizer(choice: Tokenizer, lang: str) -> str:
    """Returns the tokeniser of a language, as TextConfig names it."""
    language = base_language(lang)
    return f"moses-{language}" if choice == "moses" or (choice == "auto" and language in MOSES) else "none"


def show_tokenizers(text: TextConfig) -> None:
    """Logs on one line how the text of each side is tokenised."""
    sides = [(text.source_lang, text.source_tokenizer), (text.target_lang, text.target_tokenizer)]
    tokenizers = ", ".join(f"{lang} {tokenizer}" for lang, tokenizer in sides)
    normalized = f"; --normalize-punctuation {text.normalize_punctuation}" if "moses-" in tokenizers else ""
    console.info(f"tokenisation: {tokenizers}{normalized}")


def make_codec(config: DataConfig, train: list[Corpus]) -> TextCodec:
    """Returns the codec. Its subword model is read from --subword-model or trained on a sample of `train`."""
    text = text_config(config)
    if config.subword_model:
        model = _load_model(config.subword_model, config.subword)
        if unknown := [tag for tag in text.tags if model.ids([tag]) == [UNK]]:
            raise NmtError(f"--subword-model {config.subword_model} has no piece {unknown[0]}; leave out --tag")
        return TextCodec(text, model, model)
    if config.joint_vocab:
        model = _train_model(config, text, train, ("source", "target"))
        return TextCodec(text, model, model)
    return TextCodec(
        text, _train_model(config, text, train, ("source",)), _train_model(config, text, train, ("target",))
    )


def _load_model(path: str, kind: str) -> Subword:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NmtError(f"--subword-model {path} cannot be read ({error.strerror}); check the path") from error
    model = Subword.from_bytes(data, kind, f"--subword-model {path}")
    if not model.has_bytes:
        console.warn(
            f"--subword-model {path} was trained without byte_fallback; characters that have no piece will be lost"
        )
    return model


def _train_model(config: DataConfig, text: TextConfig, train: list[Corpus], sides: tuple[Side, ...]) -> Subword:
    """Trains a subword model on a sample of one side or of both."""
    total = sum(corpus.pairs for corpus in train)
    sampled = min(total, config.subword_sample)
    named = " and ".join(text.source_lang if side == "source" else text.target_lang for side in sides)
    console.info(f"Training a {config.subword} model of {config.vocab_size:,} pieces on {sampled:,} lines of {named}")
    chunks = chunked(sample(read_corpora(train), total, sampled, config.seed))
    tokenizes = {text.source_tokenizer, text.target_tokenizer} != {"none"}
    workers = useful_workers(config.processes, sampled) if tokenizes else 1
    with closing(in_order(partial(_preparer, text, sides), chunks, workers, preload=__name__)) as prepared:
        lines = (line for chunk in prepared for side in (chunk.source, chunk.target) for line in side)
        tags = text.tags if "source" in sides else ()
        return Subword.train(lines, config.subword, config.vocab_size, _read_symbols(config.symbols), tags)


def _read_symbols(path: str | None) -> list[str]:
    if path is None:
        return []
    symbols = list(read_lines(path))
    seen: set[str] = set()
    for number, symbol in enumerate(symbols, start=1):
        if len(symbol.split()) != 1 or symbol != symbol.strip() or symbol in seen:
            place = f"--symbols {path}, line {number}"
            raise NmtError(f"{place}: {symbol!r} is not a single new word; write one new word on each line")
        seen.add(symbol)
    return symbols


def _preparer(text: TextConfig, sides: tuple[Side, ...], _worker: int) -> Callable[[Chunk], Chunk]:
    """Returns a function that prepares a chunk for the subword model. A side that is not in `sides` becomes empty."""
    preparers = [Preparer(text, side) if side in sides else None for side in get_args(Side)]

    def prepare(chunk: Chunk) -> Chunk:
        pairs = zip(preparers, (chunk.source, chunk.target), strict=True)
        source, target = ([preparer.prepare(line) for line in lines] if preparer else [] for preparer, lines in pairs)
        return Chunk(source, target, [], [])

    return prepare


def useful_workers(workers: int, pairs: int) -> int:
    """Returns at most one worker for each chunk, because starting a process takes longer than encoding a chunk."""
    return max(1, min(workers, -(-pairs // CHUNK_PAIRS)))
