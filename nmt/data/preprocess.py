"""Makes a data folder from parallel text: checks the text, trains a subword model and encodes the text.

The text is read to find its shards, to check --alignments, to train each subword model, to index it for --similar,
to encode it, and to learn which endings its words exchange. It is read in chunks of bounded size, so that memory does
not grow with the corpus.
Encoding the training text is a job (nmt/jobs), so that interrupted work resumes after the last finished shard.
"""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt import console
from nmt.config import DataConfig, names_in
from nmt.data.arrays import Mixture
from nmt.data.codec import make_codec, show_tokenizers, source_endings, text_config
from nmt.data.encoder import REASONS, Encoder, columns_of
from nmt.data.folder import TRAIN, SplitMeta, SplitWriter, codec_in, complete, write_models
from nmt.data.leaks import HeldOut
from nmt.data.raw_pairs import Corpus, RawPairs, check_pairs, copies_of, corpora_of, joined, raw_pairs, useful_workers
from nmt.errors import NmtError, importing
from nmt.files import STDIO, check_new, digest_of_json, writing
from nmt.jobs.run import JobFolder, contents_of, job_folder, settings_of
from nmt.jobs.source import File, Files, Plan
from nmt.jobs.stream import Batch, Chunk, Execution, Job, Result
from nmt.memories.memory import Memory
from nmt.signals import held
from nmt.text.codec import TextCodec
from nmt.text.corpus import is_regular, read_rows
from nmt.text.directions import Direction
from nmt.text.languages import listed_codes
from nmt.text.text_config import TextConfig

_SHARD_PAIRS = 50_000
# Indices of held-out pairs that the training text has: as they are, `same`, and nearly, `near`.
Leaked = dict[str, set[int]]
_MANY = 0.01  # the share of a split that may be in the training text without a warning


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
    text = _text_config_of(like, config) if like else text_config(config)
    train = corpora_of(config, text, "--train", config.train)
    if text.languages:
        text = _with_directions(text, config, train)
        train += copies_of(train) if config.copies else []
    like = like and TextCodec(text, like.source, like.target)
    splits = _other_splits(config, text, train)
    check_new(config.dest, "--dest")
    for path in config.alignments:
        if path == STDIO or not (is_regular(path) or os.path.isdir(path)):
            raise NmtError(f"--alignments {path} is a pipe or a device, but it is read several times; give a file")
    segments = [list(corpus.paths) for corpus in train]
    if config.similar:
        with importing("rapidfuzz", "--similar", extra="memory"):
            import rapidfuzz  # noqa: F401
        if options.cluster:
            raise NmtError("--similar does not work with --cluster, whose machines lack the index; leave out --cluster")
    langs = ("the source language", "the target language") if text.languages else config.pairs[0]
    columns = [f"--train text in {lang}" for lang in langs] + ["--alignments"] * bool(config.alignments)
    for files, path in zip(segments, config.alignments, strict=False):
        files.append(path)
    source = Files(segments, columns, lambda row, place: (row, train[place.segment]))

    def prepare(folder: Path, plan: Plan) -> None:
        check_pairs(config, plan, train, list(splits.values()))
        show_tokenizers(text)
        write_models(folder, like or make_codec(config, text, plan, train))

    inputs = [path for split in splits.values() for corpus in split for path in corpus.paths]
    # What cannot be read is reported where it is used.
    inputs += filter(os.path.isfile, filter(None, (config.subword_model, config.symbols, config.like)))
    settings = settings_of(config, without=("dest", "workers")) | contents_of(inputs)
    with job_folder(config.dest, source, options, _SHARD_PAIRS, settings, prepare) as folder:
        try:
            codec = like or codec_in(folder.data, text)
        except NmtError as error:
            raise NmtError(f"{error}; or remove {folder.path} to start over") from error
        config.check_sampling(codec.config.subword)
        if not options.merge:
            if not options.cluster:
                workers = useful_workers(config.processes, folder.plan.rows - folder.rows_done)
                execution = replace(execution, workers=workers)
            with console.Progress(f"Encoding {TRAIN}", None, "pair") as progress:
                memories = _memories(folder.plan, train) if config.similar else {}
                job = EncodingJob(codec.to_dict(), config, _held_out(splits), memories)
                folder.finish_shards(job, execution, progress)
        if options.shard:
            return
        merged, leaks = _merge_training(folder, codec, config, train)
        done = {TRAIN: merged}
        for name, split_corpora in splits.items():
            done[name] = _encode_split(folder.data, name, split_corpora, codec)
        if not codec.config.endings:  # --like has those of its own corpus
            codec.config = replace(codec.config, endings=source_endings(config, folder.plan, train))
        complete(folder.data, codec, done, config.to_dict())
        with writing(f"--dest {config.dest}", "move what is there, or choose another --dest"), held():
            folder.data.rename(os.path.realpath(config.dest))
            folder.is_complete = True
        folder.finish()
    _summarise(config, codec, done)
    _show_leaks(config, {name: done[name] for name in splits}, leaks)


def _memories(plan: Plan, train: Sequence[Corpus]) -> dict[Direction, Memory]:
    """Returns a memory of the training text of each direction, whose index is built the first time."""
    files_of: dict[Direction, list[Sequence[File]]] = {}
    for corpus, files in zip(train, plan.segments, strict=True):
        if not corpus.direction.is_copy:
            files_of.setdefault(corpus.direction, []).append(files[:2])  # without alignments
    memories = {}
    for direction, sides in files_of.items():
        rows = chain.from_iterable(read_rows(source.path, target.path) for source, target in sides)
        digest = digest_of_json([file.digest for pair in sides for file in pair])
        memories[direction] = Memory.of(partial(iter, rows), digest, direction)
    return memories


def _held_out(splits: Mapping[str, Sequence[Corpus]]) -> HeldOut:
    """Returns the lines of the other splits, whose pairs are counted in their order."""
    rows = chain.from_iterable(read_rows(*corpus.paths) for split in splits.values() for corpus in split)
    return HeldOut((pair, line) for pair, row in enumerate(rows) for line in row)


def _show_leaks(config: DataConfig, splits: Mapping[str, SplitMeta], leaks: Leaked) -> None:
    """Says how many held-out pairs are in the training text, and warns if these are many."""
    first = 0
    for (name, split), prefix in zip(splits.items(), (config.valid, *config.test), strict=True):
        pairs = range(first, first + split.pairs)
        first += split.pairs
        same = len(leaks["same"].intersection(pairs))
        near = len((leaks["near"] - leaks["same"]).intersection(pairs))
        count = f"{same:,} of {console.counted(split.pairs, 'pair')}"
        summary = f"{name}: {count} have a side that is in the training text, and {near:,} more have a similar one"
        if same > _MANY * split.pairs:
            console.warn(f"{summary}; drop such training pairs with nmt clean --exclude {prefix}")
        else:
            console.info(summary)


def _text_config_of(like: TextCodec, config: DataConfig) -> TextConfig:
    like_pair, asked_pair = (like.config.source_lang, like.config.target_lang), config.pairs[0]
    if like.config.languages and not config.languages:
        raise NmtError(f"--like {config.like} has several languages; give --languages and --directions")
    if config.languages and not like.config.languages:
        problem = f"--like {config.like} translates {like_pair[0]} to {like_pair[1]} only"
        raise NmtError(f"{problem}; give --source-lang and --target-lang instead of --languages")
    if not config.languages and like_pair != asked_pair:
        given = f"--source-lang is {asked_pair[0]} and --target-lang is {asked_pair[1]}"
        problem = f"--like {config.like} translates {like_pair[0]} to {like_pair[1]}, but {given}"
        raise NmtError(f"{problem}; they must be the same")
    if unknown := sorted(set(config.tag) - {"", *like.config.tags}):
        known = f"it knows {' '.join(like.config.tags)}" if like.config.tags else "it has no tags"
        raise NmtError(f"--like {config.like} does not know --tag {unknown[0]}; {known}")
    text = like.config
    if (config.terms or config.similar) and not text.joint_vocab:
        flag = "--terms" if config.terms else "--similar"
        raise NmtError(
            f"{flag} needs one vocabulary for both languages, but --like {config.like} has two; leave it out"
        )
    # Control characters, which no text has. Without pieces for bytes, the last pieces are usually the rarest.
    rare = [f"<0x0{n}>" for n in range(1, 9)] if "<0x01>" in like.source else like.source.vocabulary[::-1]
    taken = {*text.marks, *text.tags, *text.language_pieces}
    unused = (piece for piece in rare if piece not in taken)
    if config.terms and not text.term_pieces:
        text = replace(text, term_pieces=tuple(islice(unused, 3)))
    if config.context:
        text = replace(text, context=config.context, context_piece=text.context_piece or next(unused))
    if config.similar:
        text = replace(text, similar_piece=text.similar_piece or next(unused))
    return text


def _with_directions(text: TextConfig, config: DataConfig, train: Sequence[Corpus]) -> TextConfig:
    """Returns the text processing with the directions of the training text, and those that a model had before."""
    asked, has = [text.direction(*pair) for pair in config.pairs], {corpus.direction for corpus in train}
    known = {lang for direction in has for lang in direction}
    directions = [str(direction) for direction in asked if direction not in has and config.directions]
    if missing := directions or sorted({lang for direction in asked for lang in direction} - known):
        flag = "--directions" if config.directions else "--languages"
        raise NmtError(f"no --train has files for {', '.join(missing):.200}; take it out of {flag}, or add such files")
    if config.alignments and len(train) != len(config.train):
        advice = "name it with --directions, and give each --train one kind of files"
        raise NmtError(f"--alignments needs one direction for each --train; {advice}")
    trained = [corpus.direction.stored for corpus in train]
    if unused := set(names_in(config.languages or "")).difference(*config.pairs):
        console.warn(f"no direction has {listed_codes(unused)}; take it out of --languages, or name its --directions")
    if config.like and not text.directions:
        return text  # the model was trained on others, but it is not known which
    return replace(text, directions=tuple(dict.fromkeys([*text.directions, *trained])))


def _other_splits(config: DataConfig, text: TextConfig, train: Sequence[Corpus]) -> dict[str, list[Corpus]]:
    """Returns the corpora of the validation set and of the test sets, in the directions of the training text."""
    prefixes = {"valid": config.valid} | {f"test{i or ''}": prefix for i, prefix in enumerate(config.test)}
    splits, trained = {}, dict.fromkeys(corpus.direction for corpus in train if not corpus.direction.is_copy)
    for name, prefix in prefixes.items():
        flag = "--valid" if name == "valid" else "--test"
        split_corpora = corpora_of(config, text, flag, [prefix])
        splits[name] = [corpus for corpus in split_corpora if corpus.direction in trained]
        present = {corpus.direction for corpus in split_corpora}
        missing = [str(direction) for direction in trained if direction not in present]
        if not splits[name]:
            raise NmtError(f"{flag} {prefix} has no files for the directions of --train, {', '.join(missing):.200}")
        if missing:
            console.warn(f"{flag} {prefix} has no files for {', '.join(missing):.200}")
    return splits


def _merge_training(
    folder: JobFolder, codec: TextCodec, config: DataConfig, train: Sequence[Corpus]
) -> tuple[SplitMeta, Leaked]:
    """Joins the encoded shards, and decides how often an epoch has the pairs of each corpus.

    Returns:
        The description of the split, and the held-out pairs that it has.
    """
    leaks: Leaked = {"same": set(), "near": set()}
    counts = [config.encodings if config.samples_side(side) else 1 for side in ("source", "target")]
    kept, total = [0] * len(train), Counter[str]()
    with SplitWriter(folder.data, TRAIN, codec.config, aligned=bool(config.alignments), encodings=counts) as split:
        for shard, result in folder.results():
            split.append(*columns_of(result))
            kept[shard.segment] += result.values["kept"]
            total.update(result.values)
            for name, leaked in leaks.items():
                leaked.update(result.arrays[name].tolist())
    dropped = {reason: total[reason] for reason in REASONS}
    if not split.pairs:
        folder.discard()
        problem = f"all {folder.plan.rows:,} training pairs were dropped ({dropped_in_words(dropped, config)})"
        raise NmtError(f"{problem}; check the text and the filters")
    if total["unknown"]:
        can_learn = codec.config.subword == "sentencepiece"
        console.warn(
            f"{total['unknown']:,} of {total['kept']:,} training pairs have characters that "
            f"{config.like or config.subword_model} does not know, so translations will lack them"
            + ("; nmt import huggingface --add-pieces adds them to a model" if can_learn else "")
        )
    meta = replace(_described(split.meta, codec, train, kept), dropped=dropped)
    weights = [config.weight[corpus.prefix_index] if config.weight else 1.0 for corpus in train]
    are_copies = [corpus.direction.is_copy for corpus in train]
    weights = [w * (config.copies or 1) if is_copy else w for w, is_copy in zip(weights, are_copies, strict=True)]
    if len(set(weights)) == 1 and config.temperature == 1:
        return meta, leaks  # an epoch has each pair once
    names = [f"{each.prefix} {each.direction}" if codec.config.languages else each.prefix for each in train]
    if 0 in kept:
        folder.discard()  # the way out is another --train, which is another job
        raise NmtError(f"all pairs of {names[kept.index(0)]} were dropped; leave out this --train")
    mixture = Mixture.of(kept, weights, config.temperature)
    for name, pairs, share in zip(names, kept, mixture.shares, strict=True):
        console.info(f"{name}: {pairs:,} pairs, {share:.1%} of an epoch, each {share * sum(kept) / pairs:.3g} times")
    return replace(meta, mixture=mixture), leaks


def _described(meta: SplitMeta, codec: TextCodec, split_corpora: Sequence[Corpus], sizes: Sequence[int]) -> SplitMeta:
    """Returns the description of a split with its corpora, of which these numbers of pairs are."""
    meta = replace(meta, corpora=tuple(corpus.prefix for corpus in split_corpora))
    if not codec.config.languages:
        return meta
    return replace(meta, directions=tuple(corpus.direction.stored for corpus in split_corpora), sizes=tuple(sizes))


def _encode_split(folder: Path, name: str, split_corpora: Sequence[Corpus], codec: TextCodec) -> SplitMeta:
    """Encodes a split without dropping pairs, and stores its raw text."""
    encoder, ends = Encoder(codec), []
    with (
        SplitWriter(folder, name, codec.config, raw=[corpus.direction for corpus in split_corpora]) as split,
        console.Progress(f"Encoding {name}", None, "pair") as progress,
    ):
        for corpus in split_corpora:
            for pairs in raw_pairs(read_rows(*corpus.paths), direction=corpus.direction):
                split.append(*columns_of(encoder(pairs)))
                split.append_raw(pairs.source, pairs.target, corpus.direction)
                progress.advance(len(pairs.source))
            ends.append(split.pairs)
    return _described(split.meta, codec, split_corpora, np.diff(ends, prepend=0).tolist())


def dropped_in_words(dropped: Mapping[str, int], config: DataConfig) -> str:
    """Returns the numbers of dropped pairs in words."""
    return (
        f"{dropped['empty']:,} with an empty side, "
        f"{dropped['too_long']:,} longer than --max-length {config.max_length}, "
        f"{dropped['uneven']:,} beyond --max-length-ratio {config.max_length_ratio:g}"
    )


def _summarise(config: DataConfig, codec: TextCodec, splits: dict[str, SplitMeta]) -> None:
    source, target = ("source", "target") if config.languages else config.pairs[0]
    for name, split in splits.items():
        sides = [
            f"{lang} {tokens:,} pieces ({tokens / split.pairs / k:.1f} a line){f' in {k} encodings' if k > 1 else ''}"
            for lang, tokens, k in (
                (source, split.source_tokens, split.source_encodings),
                (target, split.target_tokens, split.target_encodings),
            )
        ]
        pairs = Counter[str]()
        for direction, size in zip(split.directions, split.sizes, strict=True):
            pairs[direction.replace(" ", "-")] += size
        counts = "".join(f", {direction} {size:,}" for direction, size in pairs.items())
        console.info(f"{name}: {console.counted(split.pairs, 'pair')}{counts}, {', '.join(sides)}")
    dropped = splits[TRAIN].dropped
    count = console.counted(sum(dropped.values()), "training pair")
    console.info(f"dropped {count}: {dropped_in_words(dropped, config)}")
    sizes = f"{len(codec.source):,} pieces, joint"
    if not codec.config.joint_vocab:
        sizes = f"{source} {len(codec.source):,} pieces, {target} {len(codec.target):,} pieces"
    console.info(f"vocabulary: {sizes} ({config.like or config.subword_model or codec.config.subword})")
    console.info(f"wrote {config.dest}")


@dataclass(frozen=True)
class EncodingJob(Job):
    """Encodes the training text, and finds held-out pairs in it.

    The result has their indices in the arrays `same` and `near`; see `HeldOut.leaked_pairs`.
    """

    codec_values: dict[str, Any]
    config: DataConfig
    held_out: HeldOut
    memories: Mapping[Direction, Memory]

    def load(self, _models: Sequence[str], _process: int) -> Encoder:
        return Encoder(TextCodec.from_dict(self.codec_values, "the codec of this run"), self.config, self.memories)

    def batches(self, _: Any, chunk: Chunk) -> Iterator[Batch]:
        rows, (corpus, *_others) = zip(*chunk.units, strict=True)  # a shard is part of one corpus
        tag = self.config.tag[corpus.prefix_index] if self.config.tag else ""
        for pairs in raw_pairs(rows, chunk.first - 1, corpus.direction, tag, self.config.context):
            yield Batch(range(pairs.first + 1, pairs.first + 1 + len(pairs.source)), pairs)

    def compute(self, encoder: Encoder, pairs: RawPairs) -> Result:
        result = encoder(pairs)
        # The text of a copy is checked in its own pair.
        same, near = self.held_out.leaked_pairs(*(([], []) if pairs.is_copy else (pairs.source, pairs.target)))
        return Result(result.values, {**result.arrays, "same": same, "near": near})

    def result(self, _: Any, __: Chunk, done: Sequence[tuple[Batch, Result]]) -> Result:
        """Returns the encoded pairs of a chunk, and how many were kept and dropped."""
        _, counts, arrays = joined(done)
        totals = Counter[str]()
        for each in counts:
            totals.update(each)
        return Result(totals, arrays)
