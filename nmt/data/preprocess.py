"""Makes a data folder from parallel text: checks the text, trains a subword model and encodes the text.

The text is read once to find its shards, once more to check --alignments, once for each subword model that is trained,
and once to encode it. It is read in chunks of bounded size, so that memory does not grow with the corpus. Encoding the
training text is a job (nmt/jobs), so that interrupted work resumes after the last finished shard.
"""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt import __version__, console
from nmt.config import DataConfig
from nmt.config.options import flag_name
from nmt.data.arrays import Mixture
from nmt.data.corpora import check, make_codec, raw_pairs, read_corpora, show_tokenizers, text_config, useful_workers
from nmt.data.encoding import Encoder, EncodingJob, Sampling, flats_of
from nmt.data.folder import TRAIN, SplitMeta, SplitWriter, codec_in, complete, write_models
from nmt.errors import NmtError
from nmt.files import STDIO, check_new, digest_of, writing
from nmt.jobs.folder import JobFolder, Preparation, job_folder
from nmt.jobs.plan import Plan
from nmt.jobs.run import finish_shards
from nmt.jobs.source import Files
from nmt.jobs.stream import Execution
from nmt.signals import held
from nmt.text.codec import TextCodec, TextConfig
from nmt.text.corpus import is_regular, parallel_paths

_SHARD_PAIRS = 50_000


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
        check(config, plan)
        show_tokenizers(text)
        write_models(folder, like or make_codec(config, text, plan))

    preparation = Preparation(
        source=source, shard_rows=options.shard_lines or _SHARD_PAIRS, settings=_settings(config), prepare=prepare
    )
    with job_folder(config.dest, "--dest", preparation, options) as folder:
        try:
            codec = like or codec_in(folder.data, text)
        except NmtError as error:
            raise NmtError(f"{error}; or remove {folder.path} to start over") from error
        if not options.merge:
            limits = config.max_length, config.max_length_ratio
            seed = config.seed if config.augment else None
            job = EncodingJob(codec.to_dict(), limits, Sampling.of(config, codec), config.tag, seed)
            if not options.cluster:
                workers = useful_workers(config.processes, folder.plan.rows - folder.rows_done)
                execution = replace(execution, workers=workers)
            with console.Progress(f"Encoding {TRAIN}", None, "pair") as progress:
                finish_shards(job, source, folder, execution, progress)
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
    sampling = Sampling.of(config, codec)
    counts = sampling.encodings("source"), sampling.encodings("target")
    kept, dropped = [0] * len(config.train), Counter[str]()
    with SplitWriter(folder.data, TRAIN, codec.config, aligned=bool(config.alignments), encodings=counts) as split:
        for shard, result in folder.results():
            split.append(*flats_of(result))
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
        for pairs in raw_pairs(read_corpora([list(map(str, paths))])):
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
