"""From parallel text to a token store: count and check, get a subword model, encode.

The text is streamed three times (once to count and check it, once to sample from it, once to encode it) in chunks of a
bounded size, so that memory does not grow with the corpus. Of the training text a shard at a time is made safe, and
should the work be broken off, it goes on after the last of them.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__, console
from nmt.config import DataConfig
from nmt.data.corpora import CHUNK_PAIRS, Chunk, Corpus, chunked, count, read_corpora, sample, split_prefixes
from nmt.data.meta import META
from nmt.data.resumable import Resumable, resumable_folder
from nmt.data.store import TRAIN, array_names, model_names, raw_name
from nmt.data.writer import Flat, SplitWriter, StoreWriter, flatten
from nmt.errors import NmtError
from nmt.options import flag_name
from nmt.processes import in_order
from nmt.text.codec import Preparer, TextCodec, TextConfig
from nmt.text.corpus import parallel_paths, read_lines
from nmt.text.subword import Subword

_SHARD_PAIRS = 1_000_000


class Encoded(NamedTuple):
    """A chunk in ids, and how many of its pairs were dropped for which reason."""

    source: Flat
    target: Flat
    pairs: int  # before any were dropped
    dropped: Counter[str]


def preprocess(config: DataConfig) -> None:
    """Makes the data folder `config.dest`.

    Raises:
        NmtError: the text or an option is not as it should be, or the folder cannot be written.
    """
    with resumable_folder(config.dest, "--dest", _work(config), _files(config)) as folder:
        writer = StoreWriter(folder.path)
        splits = _saved_counts(folder.saved) if folder.saved else count(config)
        codec = writer.read_models(_text(config)) if folder.saved else make_codec(config, splits[TRAIN])
        writer.write_models(codec)
        done = {TRAIN: _encode_training(writer, folder, splits, codec, config)}
        for name in list(splits)[1:]:
            done[name] = _encode_split(writer, name, splits[name], codec, config)
        done = {name: done[name] | {"corpora": list(prefixes)} for name, prefixes in split_prefixes(config).items()}
        writer.finish(codec, done, config.to_dict())
    _summarise(config, codec, done)


def _work(config: DataConfig) -> dict[str, Any]:
    """What the data folder depends on: a folder that was begun with something else cannot be gone on with."""
    options = {flag_name(name): value for name, value in config.to_dict().items() if name not in ("dest", "workers")}
    langs = config.source_lang, config.target_lang
    corpora = [parallel_paths(prefix, *langs) for prefixes in split_prefixes(config).values() for prefix in prefixes]
    files = [*chain.from_iterable(corpora), *(Path(path) for path in (config.subword_model, config.symbols) if path)]
    stats = {path: path.stat() for path in files if path.exists()}
    states = {f"state of {path}": f"{s.st_size} bytes of {time.ctime(s.st_mtime)}" for path, s in stats.items()}
    return {"nmt": __version__, **options, **states}


def _files(config: DataConfig) -> set[str]:
    """Returns the names of the files of the data folder."""
    langs = config.source_lang, config.target_lang
    sides = [(split, lang) for split in split_prefixes(config) for lang in langs]
    arrays = chain.from_iterable(array_names(*side) for side in sides)
    return {META, *model_names(_text(config)), *arrays, *(raw_name(*side) for side in sides)}


def _counts_to_save(splits: dict[str, list[Corpus]]) -> dict[str, list[tuple[str, str, int]]]:
    return {name: [(str(c.source), str(c.target), c.pairs) for c in corpora] for name, corpora in splits.items()}


def _saved_counts(saved: dict[str, Any]) -> dict[str, list[Corpus]]:
    return {
        name: [Corpus(Path(source), Path(target), pairs) for source, target, pairs in corpora]
        for name, corpora in saved["corpora"].items()
    }


def _text(config: DataConfig) -> TextConfig:
    return TextConfig(
        source_lang=config.source_lang,
        target_lang=config.target_lang,
        tokenizer=config.tokenizer,
        lowercase=config.lowercase,
        subword=config.subword,
        joint_vocab=config.joint_vocab,
    )


def make_codec(config: DataConfig, train: list[Corpus]) -> TextCodec:
    """The codec with a subword model that is read from --subword-model or trained on a sample of `train`."""
    text = _text(config)
    if config.subword_model:
        model = _load_model(config.subword_model, config.subword)
        return TextCodec(text, model, model)
    if config.joint_vocab:
        model = _train_model(config, text, train, (text.source_lang, text.target_lang))
        return TextCodec(text, model, model)
    return TextCodec(
        text,
        _train_model(config, text, train, (text.source_lang, None)),
        _train_model(config, text, train, (None, text.target_lang)),
    )


def _load_model(path: str, kind: str) -> Subword:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise NmtError(f"--subword-model {path} cannot be read ({error.strerror}); check the path") from error
    model = Subword.from_bytes(data, kind, f"--subword-model {path}")
    if not model.has_bytes:
        console.warn(
            f"--subword-model {path} was trained without byte_fallback; characters it does not know will be lost"
        )
    return model


def _train_model(
    config: DataConfig, text: TextConfig, train: list[Corpus], langs: tuple[str | None, str | None]
) -> Subword:
    """Trains on the sample's lines of those sides that `langs` names."""
    total = sum(corpus.pairs for corpus in train)
    wanted = min(total, config.subword_sample)
    named = " and ".join(lang for lang in langs if lang)
    console.info(f"Training a {config.subword} model of {config.vocab_size:,} pieces on {wanted:,} lines of {named}")
    chunks = chunked(sample(read_corpora(train), total, wanted, config.seed))
    workers = _useful_workers(config.workers, wanted) if config.tokenizer == "moses" else 1
    with closing(in_order(partial(_preparer, text, langs), chunks, workers)) as prepared:
        lines = (line for chunk in prepared for side in chunk for line in side)
        return Subword.train(lines, config.subword, config.vocab_size, _read_symbols(config.symbols))


def _read_symbols(path: str | None) -> list[str]:
    if path is None:
        return []
    symbols, seen = list(read_lines(path)), set[str]()
    for number, symbol in enumerate(symbols, start=1):
        if len(symbol.split()) != 1 or symbol != symbol.strip() or symbol in seen:
            raise NmtError(f"--symbols {path}, line {number}: {symbol!r} is not one new word; give one a line")
        seen.add(symbol)
    return symbols


def _preparer(text: TextConfig, langs: tuple[str | None, str | None], _worker: int) -> Callable[[Chunk], Chunk]:
    """Returns a function from a chunk to what the subword model sees; a side without a language becomes empty."""
    preparers = [Preparer(text, lang) if lang else None for lang in langs]

    def prepare(chunk: Chunk) -> Chunk:
        sides = zip(preparers, chunk, strict=True)
        return Chunk(*([side.prepare(line) for line in lines] if side else [] for side, lines in sides))

    return prepare


def _useful_workers(workers: int, pairs: int) -> int:
    """No more processes than chunks: starting one takes longer than encoding a chunk."""
    return max(1, min(workers, -(-pairs // CHUNK_PAIRS)))


def _encode_training(
    writer: StoreWriter, folder: Resumable, splits: dict[str, list[Corpus]], codec: TextCodec, config: DataConfig
) -> dict[str, Any]:
    """Encodes and filters the training pairs from where it was left; returns the split's part of meta.json."""
    saved = folder.saved or {"read": 0, "dropped": {}, "files": {}}
    read, dropped = saved["read"], Counter(saved["dropped"])
    corpora = splits[TRAIN]
    total = sum(corpus.pairs for corpus in corpora)
    if read:
        console.info(f"going on after {read:,} of {total:,} training pairs")
    make_encoder = partial(_encoder, codec.to_dict(), (config.max_length, config.max_length_ratio))
    chunks = chunked(islice(read_corpora(corpora), read, None))
    workers = _useful_workers(config.workers, total - read)
    with (
        writer.split(TRAIN, codec.config, raw=False, kept=saved["files"]) as split,
        console.Progress(f"Encoding {TRAIN}", total, "pairs", completed=read) as progress,
        closing(in_order(make_encoder, chunks, workers)) as results,
    ):
        for encoded in results:
            split.append(encoded.source, encoded.target)
            dropped.update(encoded.dropped)
            progress.advance(encoded.pairs)
            before, read = read, read + encoded.pairs
            if read // _SHARD_PAIRS > before // _SHARD_PAIRS:
                files = split.sync()
                folder.save({"read": read, "dropped": dropped, "files": files, "corpora": _counts_to_save(splits)})
    if not split.pairs:
        raise NmtError(
            f"all {total:,} training pairs were dropped ({_reasons(dropped, config)}); check text and filters"
        )
    return split.counts | {"dropped": dict(dropped)}


def _encode_split(
    writer: StoreWriter, name: str, corpora: list[Corpus], codec: TextCodec, config: DataConfig
) -> dict[str, Any]:
    """Encodes a split and keeps its text; returns its part of meta.json."""
    total = sum(corpus.pairs for corpus in corpora)
    make_encoder, workers = partial(_encoder, codec.to_dict(), None), _useful_workers(config.workers, total)
    with (
        writer.split(name, codec.config, raw=True) as split,
        console.Progress(f"Encoding {name}", total, "pairs") as progress,
        closing(in_order(make_encoder, _keep_raw(corpora, split), workers)) as results,
    ):
        for encoded in results:
            split.append(encoded.source, encoded.target)
            progress.advance(encoded.pairs)
    return split.counts


def _keep_raw(corpora: Iterable[Corpus], split: SplitWriter) -> Iterator[Chunk]:
    for chunk in chunked(read_corpora(corpora)):
        split.append_raw(*chunk)
        yield chunk


def _encoder(
    codec_values: dict[str, Any], limits: tuple[int, float] | None, _worker: int
) -> Callable[[Chunk], Encoded]:
    """Returns a function that encodes a chunk and drops pairs outside `limits` (greatest length and ratio)."""
    codec = TextCodec.from_dict(codec_values, "the codec of this run")

    def encode(chunk: Chunk) -> Encoded:
        source, target = codec.encode_source(chunk.source), codec.encode_target(chunk.target)
        dropped: Counter[str] = Counter()
        if limits:
            kept, dropped = _filter(source, target, *limits)
            source, target = [source[i] for i in kept], [target[i] for i in kept]
        flat = flatten(source, len(codec.source)), flatten(target, len(codec.target))
        return Encoded(*flat, len(chunk.source), dropped)

    return encode


def _filter(
    source: list[list[int]], target: list[list[int]], max_length: int, max_ratio: float
) -> tuple[np.ndarray, Counter[str]]:
    """Indices of the pairs to keep, and how many were dropped for which reason, the first that applies."""
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (longer > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    reasons = {"empty": empty, "too_long": too_long, "uneven": uneven}
    dropped = Counter({reason: int(mask.sum()) for reason, mask in reasons.items()})
    return np.flatnonzero(~(empty | too_long | uneven)), dropped


def _reasons(dropped: Counter[str], config: DataConfig) -> str:
    return (
        f"{dropped['empty']:,} with an empty side, "
        f"{dropped['too_long']:,} longer than --max-length {config.max_length}, "
        f"{dropped['uneven']:,} beyond --max-length-ratio {config.max_length_ratio:g}"
    )


def _summarise(config: DataConfig, codec: TextCodec, splits: dict[str, dict[str, Any]]) -> None:
    for name, split in splits.items():
        sides = [
            f"{lang} {split[f'{side}_tokens']:,} pieces ({split[f'{side}_tokens'] / split['pairs']:.1f} a line)"
            for side, lang in (("source", config.source_lang), ("target", config.target_lang))
        ]
        console.info(f"{name}: {split['pairs']:,} pairs, {', '.join(sides)}")
    dropped = Counter(splits[TRAIN]["dropped"])
    console.info(f"dropped {dropped.total():,} training pairs: {_reasons(dropped, config)}")
    sizes = f"{len(codec.source):,} pieces, joint"
    if not codec.config.joint_vocab:
        sizes = f"{config.source_lang} {len(codec.source):,} pieces, {config.target_lang} {len(codec.target):,} pieces"
    console.info(f"vocabulary: {sizes} ({config.subword_model or config.subword})")
    console.info(f"wrote {config.dest}")
