"""Makes a data folder from parallel text: checks the text, trains a subword model and encodes the text.

The text is read three times: to count and check it, to draw a sample for the subword model, and to encode it. It is
read in chunks of bounded size, so that memory does not grow with the corpus. The encoded training text is saved to disk
shard by shard. Interrupted work resumes after the last saved shard.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt import __version__, console
from nmt.config import DataConfig
from nmt.data.corpora import Chunk, Corpus, chunked, count, read_corpora, split_prefixes
from nmt.data.encoder import Encoded, encoder
from nmt.data.epochs import Mixture
from nmt.data.meta import META
from nmt.data.names import TRAIN, array_names, link_names, model_names, raw_name
from nmt.data.resumable import Resumable, resumable_folder
from nmt.data.sampling import Sampling
from nmt.data.vocabulary import make_codec, show_tokenizers, text_config, useful_workers
from nmt.data.writer import SplitWriter, StoreWriter
from nmt.errors import NmtError
from nmt.options import flag_name
from nmt.processes import in_order
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.corpus import parallel_paths

_SHARD_PAIRS = 1_000_000


def preprocess(config: DataConfig, like: TextCodec | None = None) -> None:
    """Makes the data folder `config.dest`, or completes it if an earlier process was interrupted.

    Args:
        like: the text processing of the checkpoint --like. Without it, a subword model is trained or loaded.

    Raises:
        NmtError: the text or an option is wrong, or the folder cannot be written.
    """
    text = _text_config(config, like)
    with resumable_folder(config.dest, "--dest", _work(config), _files(config, text)) as folder:
        writer = StoreWriter(folder.path)
        splits = _saved_counts(folder.saved) if folder.saved else count(config)
        show_tokenizers(text)
        codec = like or (writer.read_models(text) if folder.saved else make_codec(config, splits[TRAIN]))
        writer.write_models(codec)
        done = {TRAIN: _encode_training(writer, folder, splits, codec, config)}
        for name in list(splits)[1:]:
            done[name] = _encode_split(writer, name, splits[name], codec, config)
        done = {name: done[name] | {"corpora": list(prefixes)} for name, prefixes in split_prefixes(config).items()}
        writer.finish(codec, done, config.to_dict())
    _summarise(config, codec, done)


def _text_config(config: DataConfig, like: TextCodec | None) -> TextConfig:
    if like is None:
        return text_config(config)
    there, here = (like.config.source_lang, like.config.target_lang), (config.source_lang, config.target_lang)
    if there != here:
        raise NmtError(
            f"--like {config.like} translates {there[0]} to {there[1]}, but --source-lang is {here[0]} and "
            f"--target-lang is {here[1]}; they must be the same"
        )
    if unknown := sorted(set(config.tag) - {"", *like.config.tags}):
        known = f"it knows {' '.join(like.config.tags)}" if like.config.tags else "it has no tags"
        raise NmtError(f"--like {config.like} does not know --tag {unknown[0]}; {known}")
    return like.config


def _work(config: DataConfig) -> dict[str, Any]:
    """Returns everything that the data folder depends on. Only work with the same values can be resumed."""
    options = {flag_name(name): value for name, value in config.to_dict().items() if name not in ("dest", "workers")}
    langs = config.source_lang, config.target_lang
    corpora = [parallel_paths(prefix, *langs) for prefixes in split_prefixes(config).values() for prefix in prefixes]
    others = (*config.alignments, config.subword_model, config.symbols, config.like)
    files = [*chain.from_iterable(corpora), *(Path(path) for path in others if path)]
    states = {f"state of {path}": _state(path) for path in files if path.exists()}
    return {"nmt": __version__, **options, **states}


def _state(path: Path) -> str:
    """Returns what shows that a file has changed."""
    status = path.stat()
    return f"{status.st_size} bytes of {datetime.fromtimestamp(status.st_mtime)}"


def _files(config: DataConfig, text: TextConfig) -> set[str]:
    """Returns the names of the files of the data folder."""
    langs = config.source_lang, config.target_lang
    sides = [(split, lang) for split in split_prefixes(config) for lang in langs]
    arrays = chain(*(array_names(*side) for side in sides), link_names(TRAIN, text))
    return {META, *model_names(text), *arrays, *(raw_name(*side) for side in sides)}


def _counts_to_save(splits: dict[str, list[Corpus]]) -> dict[str, list[tuple[str, str, int, str | None, str]]]:
    return {
        name: [(str(c.source), str(c.target), c.pairs, str(c.links) if c.links else None, c.tag) for c in corpora]
        for name, corpora in splits.items()
    }


def _saved_counts(saved: dict[str, Any]) -> dict[str, list[Corpus]]:
    return {
        name: [
            Corpus(Path(s), Path(t), pairs, Path(links) if links else None, tag) for s, t, pairs, links, tag in corpora
        ]
        for name, corpora in saved["corpora"].items()
    }


def _encode_training(
    writer: StoreWriter, folder: Resumable, splits: dict[str, list[Corpus]], codec: TextCodec, config: DataConfig
) -> dict[str, Any]:
    """Encodes and filters the training pairs that are not saved yet. Returns the split's part of meta.json."""
    corpora = splits[TRAIN]
    saved = folder.saved or {"read": 0, "dropped": {}, "files": {}, "kept": [0] * len(corpora)}
    read, dropped = saved["read"], Counter(saved["dropped"])
    kept, ends = np.array(saved["kept"]), np.cumsum([corpus.pairs for corpus in corpora])
    total = sum(corpus.pairs for corpus in corpora)
    if read:
        console.info(f"resuming after {read:,} of {total:,} training pairs")
    sampling = Sampling.of(config, codec)
    counts = sampling.encodings("source"), sampling.encodings("target")
    with (
        SplitWriter(
            writer.folder, TRAIN, codec.config, False, saved["files"], aligned=bool(config.alignments), encodings=counts
        ) as split,
        console.Progress(f"Encoding {TRAIN}", total, "pair", completed=read) as progress,
        closing(_encoded(corpora, read, codec, config, sampling)) as results,
    ):
        for encoded in results:
            split.append(encoded.source, encoded.target, encoded.links)
            dropped.update(encoded.dropped)
            kept += np.bincount(np.searchsorted(ends, encoded.kept, side="right"), minlength=len(ends))
            progress.advance(encoded.pairs)
            shard = read // _SHARD_PAIRS
            read += encoded.pairs
            if read // _SHARD_PAIRS > shard:
                files = split.sync()
                done = {"read": read, "dropped": dropped, "files": files, "kept": kept.tolist()}
                folder.save(done | {"corpora": _counts_to_save(splits)})
    if not split.pairs:
        raise NmtError(
            f"all {total:,} training pairs were dropped ({_reasons(dropped, config)}); check the text and the filters"
        )
    return split.counts | {"dropped": dict(dropped)} | _mixture(config, kept.tolist())


def _encoded(
    corpora: list[Corpus], read: int, codec: TextCodec, config: DataConfig, sampling: Sampling
) -> Generator[Encoded, None, None]:
    """Yields the encoded chunks of the training text after the first `read` pairs."""
    make_encoder = partial(encoder, codec.to_dict(), (config.max_length, config.max_length_ratio), sampling)
    chunks = chunked(islice(read_corpora(corpora), read, None), first=read)
    left = sum(corpus.pairs for corpus in corpora) - read
    return in_order(make_encoder, chunks, useful_workers(config.workers, left))


def _mixture(config: DataConfig, kept: list[int]) -> dict[str, Any]:
    """Returns the part of meta.json about the proportions of the corpora; empty if an epoch has each pair once."""
    weights = config.weight or (1.0,) * len(kept)
    if len(set(weights)) == 1 and config.temperature == 1:
        return {}
    if 0 in kept:
        raise NmtError(f"all pairs of {config.train[kept.index(0)]} were dropped; leave out this --train")
    mixture = Mixture.of(kept, weights, config.temperature)
    for prefix, pairs, share in zip(config.train, kept, mixture.shares, strict=True):
        console.info(f"{prefix}: {pairs:,} pairs, {share:.1%} of an epoch, each {share * sum(kept) / pairs:.3g} times")
    return {"mixture": asdict(mixture)}


def _encode_split(
    writer: StoreWriter, name: str, corpora: list[Corpus], codec: TextCodec, config: DataConfig
) -> dict[str, Any]:
    """Encodes a split and stores its raw text. Returns the split's part of meta.json."""
    total = sum(corpus.pairs for corpus in corpora)
    make_encoder = partial(encoder, codec.to_dict(), None, Sampling())
    workers = useful_workers(config.workers, total)
    with (
        SplitWriter(writer.folder, name, codec.config, raw=True) as split,
        console.Progress(f"Encoding {name}", total, "pair") as progress,
        closing(in_order(make_encoder, _stored_raw(corpora, split), workers)) as results,
    ):
        for encoded in results:
            split.append(encoded.source, encoded.target)
            progress.advance(encoded.pairs)
    return split.counts


def _stored_raw(corpora: Iterable[Corpus], split: SplitWriter) -> Iterator[Chunk]:
    """Yields the chunks of the corpora after storing the raw text of each."""
    for chunk in chunked(read_corpora(corpora)):
        split.append_raw(chunk.source, chunk.target)
        yield chunk


def _reasons(dropped: Counter[str], config: DataConfig) -> str:
    """Returns the numbers of dropped pairs in words."""
    return (
        f"{dropped['empty']:,} with an empty side, "
        f"{dropped['too_long']:,} longer than --max-length {config.max_length}, "
        f"{dropped['uneven']:,} beyond --max-length-ratio {config.max_length_ratio:g}"
    )


def _summarise(config: DataConfig, codec: TextCodec, splits: dict[str, dict[str, Any]]) -> None:
    for name, split in splits.items():
        sides = [
            f"{lang} {split[f'{side}_tokens']:,} pieces ({split[f'{side}_tokens'] / split['pairs'] / k:.1f} a line)"
            + (f" in {k} encodings" if k > 1 else "")
            for side, lang in (("source", config.source_lang), ("target", config.target_lang))
            for k in (split.get(f"{side}_encodings", 1),)
        ]
        console.info(f"{name}: {split['pairs']:,} pairs, {', '.join(sides)}")
    dropped = Counter(splits[TRAIN]["dropped"])
    console.info(f"dropped {dropped.total():,} training pairs: {_reasons(dropped, config)}")
    sizes = f"{len(codec.source):,} pieces, joint"
    if not codec.config.joint_vocab:
        sizes = f"{config.source_lang} {len(codec.source):,} pieces, {config.target_lang} {len(codec.target):,} pieces"
    console.info(f"vocabulary: {sizes} ({config.like or config.subword_model or codec.config.subword})")
    console.info(f"wrote {config.dest}")
