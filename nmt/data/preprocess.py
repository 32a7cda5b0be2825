"""Makes a data folder from parallel text: checks the text, trains a subword model and encodes the text.

The text is read once to find its shards, once more to check --alignments, once for each subword model that is trained,
and once to encode it. It is read in chunks of bounded size, so that memory does not grow with the corpus. Encoding the
training text is a job (nmt/jobs), so that interrupted work resumes after the last finished shard.
"""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt import __version__, console
from nmt.config import DataConfig, flag_name
from nmt.config.data import LONGEST_ALIGNED
from nmt.data import corpora
from nmt.data.arrays import Mixture, hash_of
from nmt.data.corpora import RawPairs, raw_pairs
from nmt.data.folder import TRAIN, Flat, SplitMeta, SplitWriter, codec_in, complete, flatten, write_models
from nmt.errors import NmtError
from nmt.files import STDIO, check_new, digest_of, writing
from nmt.jobs.run import JobFolder, job_folder
from nmt.jobs.source import Files, Plan
from nmt.jobs.stream import Batch, Chunk, Execution, Job, Place, Processor, Result, Row
from nmt.signals import held
from nmt.text.codec import Side, TextCodec, TextConfig
from nmt.text.corpus import is_regular, parallel_paths
from nmt.text.words import parse_pharaoh

_SHARD_PAIRS = 50_000
Ids = list[int]
_SIDES = ("source", "target", "alignments")


def preprocess(config: DataConfig, execution: Execution | None = None, like: TextCodec | None = None) -> None:
    """Makes the data folder `config.dest`, or completes it if an earlier process was interrupted.

    Args:
        execution: how the training text is encoded.
        like: the text processing of the checkpoint --like. Without it, a subword model is trained or loaded.

    Raises:
        StoppedError: a signal asked the process to end; the same command resumes the work.
        NmtError: the text or an option is wrong, or the folder cannot be written.
    """
    execution = execution or Execution()
    options = execution.options
    text = _text_config_of(like, config) if like else corpora.text_config(config)
    check_new(config.dest, "--dest")
    for path in config.alignments:
        if path == STDIO or not (is_regular(path) or os.path.isdir(path)):
            raise NmtError(f"--alignments {path} is a pipe or a device, but it is read several times; give a file")
    langs = config.source_lang, config.target_lang
    segments = [list(map(str, parallel_paths(prefix, *langs))) for prefix in config.train]
    columns = [f"--train text in {lang}" for lang in langs] + ["--alignments"] * bool(config.alignments)
    for files, path in zip(segments, config.alignments, strict=False):
        files.append(path)
    source = Files(segments, columns)

    def prepare(folder: Path, plan: Plan) -> None:
        corpora.check(config, plan)
        corpora.show_tokenizers(text)
        write_models(folder, like or corpora.make_codec(config, text, plan))

    with job_folder(
        config.dest, "--dest", source, options, shard_rows=_SHARD_PAIRS, settings=_settings(config), prepare=prepare
    ) as folder:
        try:
            codec = like or codec_in(folder.data, text)
        except NmtError as error:
            raise NmtError(f"{error}; or remove {folder.path} to start over") from error
        config.check_sampling(codec.config.subword)
        if not options.merge:
            if not options.cluster:
                workers = corpora.useful_workers(config.processes, folder.plan.rows - folder.rows_done)
                execution = replace(execution, workers=workers)
            with console.Progress(f"Encoding {TRAIN}", None, "pair") as progress:
                folder.finish_shards(EncodingJob(codec.to_dict(), config), execution, progress)
        if options.shard:
            return
        done = {TRAIN: _merge_training(folder, codec, config)}
        tests = {f"test{i or ''}": prefix for i, prefix in enumerate(config.test)}
        for name, prefix in {"valid": config.valid, **tests}.items():
            done[name] = _encode_split(folder.data, name, prefix, codec)
        complete(folder.data, codec, done, config.to_dict())
        with writing(f"--dest {config.dest}", "move what is there, or choose another --dest"), held():
            folder.data.rename(config.dest)
            folder.is_complete = True
        folder.finish()
    _summarise(config, codec, done)


def _text_config_of(like: TextCodec, config: DataConfig) -> TextConfig:
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


def _settings(config: DataConfig) -> dict[str, Any]:
    """Returns what the data folder depends on besides the training text."""
    options = {flag_name(name): value for name, value in config.to_dict().items() if name not in ("dest", "workers")}
    langs = config.source_lang, config.target_lang
    tests = [path for prefix in (config.valid, *config.test) for path in parallel_paths(prefix, *langs)]
    # What cannot be read is reported where it is used.
    others = [path for path in (config.subword_model, config.symbols, config.like) if path and os.path.isfile(path)]
    digests = {f"content of {path}": digest_of(str(path))[:16] for path in (*tests, *others)}
    return {"version of nmt": __version__, **options, **digests}


def _merge_training(folder: JobFolder, codec: TextCodec, config: DataConfig) -> SplitMeta:
    """Joins the encoded shards, and decides how often an epoch has the pairs of each corpus."""
    counts = [config.encodings if config.samples_side(side) else 1 for side in ("source", "target")]
    kept, dropped = [0] * len(config.train), Counter[str]()
    with SplitWriter(folder.data, TRAIN, codec.config, aligned=bool(config.alignments), encodings=counts) as split:
        for shard, result in folder.results():
            split.append(*(Flat(result.arrays[side], result.arrays[f"lengths of {side}"]) for side in _SIDES))
            kept[shard.segment] += result.values["kept"]
            dropped.update(result.values["dropped"])
    if not split.pairs:
        folder.discard()
        raise NmtError(
            f"all {folder.plan.rows:,} training pairs were dropped ({dropped_in_words(dropped, config)}); "
            f"check the text and the filters"
        )
    meta = replace(split.meta, corpora=config.train, dropped=dict(dropped))
    weights = config.weight or (1.0,) * len(kept)
    if len(set(weights)) == 1 and config.temperature == 1:
        return meta  # an epoch has each pair once
    if 0 in kept:
        folder.discard()  # the way out is another --train, which is another job
        raise NmtError(f"all pairs of {config.train[kept.index(0)]} were dropped; leave out this --train")
    mixture = Mixture.of(kept, weights, config.temperature)
    for prefix, pairs, share in zip(config.train, kept, mixture.shares, strict=True):
        console.info(f"{prefix}: {pairs:,} pairs, {share:.1%} of an epoch, each {share * sum(kept) / pairs:.3g} times")
    return replace(meta, mixture=mixture)


def _encode_split(folder: Path, name: str, prefix: str, codec: TextCodec) -> SplitMeta:
    """Encodes a split without dropping pairs, and stores its raw text."""
    encoder, paths = Encoder(codec), parallel_paths(prefix, codec.config.source_lang, codec.config.target_lang)
    with (
        SplitWriter(folder, name, codec.config, raw=True) as split,
        console.Progress(f"Encoding {name}", None, "pair") as progress,
    ):
        for pairs in raw_pairs(corpora.read_corpora([list(map(str, paths))])):
            encoded = encoder(pairs)
            split.append(encoded.source, encoded.target)
            split.append_raw(pairs.source, pairs.target)
            progress.advance(encoded.kept)
    return replace(split.meta, corpora=(prefix,))


def dropped_in_words(dropped: Counter[str], config: DataConfig) -> str:
    """Returns the numbers of dropped pairs in words."""
    return (
        f"{dropped['empty']:,} with an empty side, "
        f"{dropped['too_long']:,} longer than --max-length {config.max_length}, "
        f"{dropped['uneven']:,} beyond --max-length-ratio {config.max_length_ratio:g}"
    )


def _summarise(config: DataConfig, codec: TextCodec, splits: dict[str, SplitMeta]) -> None:
    for name, split in splits.items():
        sides = [
            f"{lang} {tokens:,} pieces ({tokens / split.pairs / k:.1f} a line){f' in {k} encodings' if k > 1 else ''}"
            for lang, tokens, k in (
                (config.source_lang, split.source_tokens, split.source_encodings),
                (config.target_lang, split.target_tokens, split.target_encodings),
            )
        ]
        console.info(f"{name}: {console.counted(split.pairs, 'pair')}, {', '.join(sides)}")
    dropped = Counter(splits[TRAIN].dropped)
    console.info(f"dropped {console.counted(dropped.total(), 'training pair')}: {dropped_in_words(dropped, config)}")
    sizes = f"{len(codec.source):,} pieces, joint"
    if not codec.config.joint_vocab:
        sizes = f"{config.source_lang} {len(codec.source):,} pieces, {config.target_lang} {len(codec.target):,} pieces"
    console.info(f"vocabulary: {sizes} ({config.like or config.subword_model or codec.config.subword})")
    console.info(f"wrote {config.dest}")


def filter_pairs(
    source: Sequence[Ids], target: Sequence[Ids], tags: Sequence[Ids], max_length: float, max_ratio: float
) -> tuple[list[int], Counter[str]]:
    """Returns the indices of the pairs to keep, and the number of dropped pairs by the first reason that applies.

    A tag counts in the length of its source sentence, but not in the ratio of the lengths.
    """
    lengths = np.array([list(map(len, source)), list(map(len, target))])
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    empty = shorter == 0
    too_long = ~empty & (np.maximum(longer, lengths[0] + list(map(len, tags))) > max_length)
    uneven = ~empty & ~too_long & (longer > max_ratio * shorter)
    reasons = {"empty": empty, "too_long": too_long, "uneven": uneven}
    dropped = Counter({reason: int(mask.sum()) for reason, mask in reasons.items()})
    return np.flatnonzero(~(empty | too_long | uneven)).tolist(), dropped


class EncodedPairs(NamedTuple):
    """Encoded pairs: ids and alignments of the pairs that were kept, and the number of dropped pairs by reason."""

    source: Flat
    target: Flat
    alignments: Flat
    kept: int
    dropped: Counter[str]


@dataclass(frozen=True)
class Encoder(Processor):
    """Encodes pairs. Those of the training text are changed, sampled and dropped as the options say.

    The plain encodings decide which pairs are dropped. Without options, all pairs are kept.
    """

    codec: TextCodec
    config: DataConfig | None = None

    def __call__(self, pairs: RawPairs) -> EncodedPairs:
        """Returns the encoded pairs that are kept."""
        codec, config = self.codec, self.config
        if config and config.augment:
            pairs = corpora.augmented_pairs(pairs, config.seed, codec.config)
        pairs = pairs._replace(target=corpora.cased_targets(pairs, codec.config))
        source, target = codec.encode_source(pairs.source), codec.encode_target(pairs.target)
        tags = [codec.source.ids([tag]) if tag else [] for tag in pairs.tags]
        kept, dropped = list(range(len(source))), Counter[str]()
        if config:
            kept, dropped = filter_pairs(source, target, tags, config.max_length, config.max_length_ratio)
        alignments = [_aligned_pieces(codec, pairs, i, source[i], target[i], len(tags[i])) for i in kept]
        if config:
            source = self._encodings("source", config, pairs, kept, source, config.max_length - max(map(len, tags)))
            target = self._encodings("target", config, pairs, kept, target, config.max_length)
            count = len(source) // max(1, len(kept))
            source = [[*tags[kept[i // count]], *ids] for i, ids in enumerate(source)]
        flat = flatten(source, len(codec.source)), flatten(target, len(codec.target))
        return EncodedPairs(*flat, flatten(alignments, LONGEST_ALIGNED), len(kept), dropped)

    def _encodings(
        self, side: Side, config: DataConfig, pairs: RawPairs, kept: list[int], plain: list[Ids], most: int
    ) -> list[Ids]:
        """Returns all encodings of the kept sentences of one side of the pairs, one sentence after the other.

        They depend on the seed, the line and its number alone. An encoding of more than `most` pieces is replaced by
        the plain one.
        """
        if not config.samples_side(side):
            return [plain[i] for i in kept]
        lines, counted = pairs.source if side == "source" else pairs.target, range(config.encodings)
        seeds = [[hash_of(config.seed, pairs.first + i, side == "target", n) for n in counted] for i in kept]
        strength = config.subword_dropout or config.subword_alpha or 0.0
        sampled = self.codec.sample(side, [lines[i] for i in kept], strength, seeds)
        return [ids if len(ids) <= most else plain[i] for i, drawn in zip(kept, sampled, strict=True) for ids in drawn]


def _aligned_pieces(codec: TextCodec, pairs: RawPairs, pair: int, source: Ids, target: Ids, tags: int) -> Ids:
    """Returns the numbers of a source and a target piece, in turn, for all pieces of linked words of a pair.

    Args:
        tags: how many tags come before the source pieces.
    """
    if not pairs.alignments[pair]:
        return []
    source_words = codec.words("source", pairs.source[pair], source)
    target_words = codec.words("target", pairs.target[pair], target)
    linked = set(parse_pharaoh(pairs.alignments[pair]))
    pieces = product(enumerate(source_words, tags), enumerate(target_words))
    return [number for (i, a), (j, b) in pieces if (a, b) in linked for number in (i, j)]


@dataclass(frozen=True)
class EncodingJob(Job):
    """How training text is encoded."""

    codec_values: dict[str, Any]
    config: DataConfig

    def load(self, _models: Sequence[str], _process: int) -> Encoder:
        return Encoder(TextCodec.from_dict(self.codec_values, "the codec of this run"), self.config)

    def unit(self, row: Row, place: Place) -> corpora.Record:
        """Returns the pair of a row with its alignment and its tag."""
        tag = self.config.tag[place.segment] if self.config.tag else ""
        return row[0], row[1], row[2] if len(row) > 2 else "", tag

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        for pairs in raw_pairs(chunk.units, first=chunk.first - 1):
            yield Batch(range(pairs.first + 1, pairs.first + 1 + len(pairs.source)), pairs)

    def compute(self, encoder: Encoder, pairs: RawPairs) -> EncodedPairs:
        return encoder(pairs)

    def result(self, _: Any, __: Chunk, done: Sequence[tuple[Batch, EncodedPairs]]) -> Result:
        """Returns the encoded pairs of a chunk, and how many were kept and dropped."""
        encoded = [pairs for _, pairs in sorted(done, key=lambda each: each[0].work.first)]
        arrays, dropped = {}, Counter[str]()
        for side in _SIDES:
            arrays[side] = np.concatenate([getattr(pairs, side).tokens for pairs in encoded])
            arrays[f"lengths of {side}"] = np.concatenate([getattr(pairs, side).lengths for pairs in encoded])
        for pairs in encoded:
            dropped.update(pairs.dropped)
        return Result({"kept": sum(pairs.kept for pairs in encoded), "dropped": dropped}, arrays)
