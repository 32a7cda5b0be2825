"""Measures how fast training, translation, preprocessing and batching are on this machine.

python recipes/measure/benchmark.py train --arch transformer_base
python recipes/measure/benchmark.py generate --checkpoint run/average.safetensors --input test.en
python recipes/measure/benchmark.py preprocess --train corpus --valid dev --dest data --source-lang en …
python recipes/measure/benchmark.py batching --data data
"""

# ruff: noqa: E402 (a setting comes before the import of torch)
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Annotated, Any

from nmt.resources import limit_spinning

limit_spinning()

import numpy as np
import sentencepiece
import torch
import typer
from typer import Option

from nmt import console
from nmt.checkpoint import Checkpoint, new_model, save_checkpoint
from nmt.checkpoint_format import read_codec, read_text_config
from nmt.cli.flags import flags
from nmt.config import (
    BatchConfig,
    DataConfig,
    DirectionConfig,
    ModelConfig,
    PlanConfig,
    RuntimeConfig,
    SearchConfig,
    TrainConfig,
)
from nmt.config.options import MOST_PROCESSES, Config, flag_name
from nmt.data.batching import UpdatePlan, make_plan
from nmt.data.folder import DataFolder, Flat, ParallelSplit, SplitWriter, complete, token_type
from nmt.data.loader import updates as prepared_updates
from nmt.data.preprocess import preprocess as write_data_folder
from nmt.errors import NmtError, StoppedError
from nmt.files import Output, new_folder, output_file
from nmt.jobs.source import in_chunks
from nmt.jobs.stream import Chunks, local, records_in_order
from nmt.model.architectures import model_config
from nmt.model.device import Runtime, set_up
from nmt.resources import process_peak_mib
from nmt.signals import cleaning_up
from nmt.text.codec import TextCodec
from nmt.text.corpus import read_lines
from nmt.text.directions import Direction
from nmt.text.protected import Protected
from nmt.text.subword import BOS, EOS, PAD, UNK, Subword
from nmt.text.text_config import TextConfig
from nmt.training.options import flag_words
from nmt.training.ranks import join_ranks
from nmt.training.records import METRICS, MetricsFile
from nmt.training.state import Training
from nmt.training.train import prepare, timed_updates
from nmt.training.update import endless_updates, fit_memory, plan_epoch
from nmt.translate.job import TranslationJob
from nmt.translate.units import Unit, UnitMaker

from process_memory import memory_of_all_processes_mib  # isort: skip


app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
Repeats = Annotated[int, Option(min=1, max=10_000, help="Number of measurements; the report shows median and range.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")]
MeanLength = Annotated[float, Option(min=1, max=256, help="Mean sentence length of generated data, in pieces.")]
VocabSize = Annotated[int, Option(min=8, max=1_000_000, help="Vocabulary size of generated data.")]


def main(*arguments: str) -> None:
    try:
        with console.printing(), cleaning_up():  # a signal leaves no temporary folders behind
            app(list(arguments))
    except NmtError as error:
        sys.exit(f"error: {error}")
    except StoppedError:
        sys.exit("error: the benchmark was stopped before its end; start it again")


@dataclass
class Report:
    """The result of a benchmark: what was measured, and each figure with its unit, values, median and range."""

    subject: dict[str, Any]
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, unit: str, *values: float) -> None:
        """Adds a figure with one value for each repeat."""
        spread = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        self.figures[name] = {"unit": unit, **spread, "values": values}

    def __str__(self) -> str:
        rows = {name: f"{value:,}" if type(value) is int else value for name, value in self.subject.items()}
        for name, figure in self.figures.items():
            digits, repeats = 0 if figure["median"] >= 100 else 2, len(figure["values"])
            median, least, most = (f"{figure[key]:,.{digits}f}" for key in ("median", "min", "max"))
            spread = f"  ({least} to {most}, median of {repeats})" if repeats > 1 else ""
            rows[name] = f"{median} {figure['unit']}".rstrip() + spread
        width = max(map(len, rows))
        return "\n".join(f"{name:>{width}}  {value}" for name, value in rows.items())

    def print(self, as_json: bool) -> None:
        """Prints the report as a table or as one JSON object."""
        print(json.dumps({**self.subject, "figures": self.figures}) if as_json else self)


@app.command(no_args_is_help=True)
@flags()
def train(
    arch: Annotated[str, Option(help="Architecture; `nmt architectures` lists them.")],
    batches: BatchConfig,
    model_overrides: Annotated[dict[str, Any], ModelConfig],
    data: Annotated[str | None, Option(help="Data folder; by default, sentences are generated.")] = None,
    mean_length: MeanLength = 28,
    vocab_size: VocabSize = 37000,
    updates: Annotated[int, Option(min=1, max=1_000_000, help="Updates per measurement.")] = 10,
    repeats: Repeats = 5,
    profile: Annotated[str | None, Option(help="Also write a trace of some updates to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure training: target tokens per second, padding, memory, and the share of the machine's FLOP/s.

    Token counts include EOS and exclude padding. Generated sentences have log-normal lengths. As many updates as are
    measured come first, to warm up; on a GPU five times as many, because training records graphs.
    """
    model = model_config(arch, **model_overrides)
    with (
        # Enough generated pairs to fill batches of every length.
        data_folder(data, Generated(vocab_size, mean_length, pairs=100_000)) as data_path,
        tempfile.TemporaryDirectory() as folder,
        # Opened first, so that a file that cannot be written causes an error before minutes of work.
        output_file(profile, Path(data_path).glob("*"), "--profile") if profile else nullcontext() as trace,
    ):
        config = TrainConfig(save_dir=f"{folder}/run", **batches.to_dict())
        # From the start of `nmt train` to the end of its first update.
        options = {"max_updates": 1, "log_updates": 1, "valid_metric": ("nll",)}
        started = time.time()
        run_nmt("train", data_path, "--arch=transformer_base", options=model.to_dict() | config.to_dict() | options)
        records = MetricsFile(Path(config.save_dir) / METRICS).records()
        start_up = next(record["time"] for record in records if record["kind"] == "train") - started
        with join_ranks(config, saves=False) as ranks:
            training = prepare(DataFolder.open(data_path), model, config, ranks)
            subject = {"architecture": arch, "model": model.in_words(), "data": data or "generated"}
            subject |= {"--batch-tokens": batches.batch_tokens} | changed(batches)
            report = Report(subject | {"device": training.hardware})
            add_training_figures(report, training, repeats, updates, trace)
    report.add("start-up", "s", start_up)
    report.print(as_json)


def add_training_figures(report: Report, training: Training, repeats: int, updates: int, trace: Output | None) -> None:
    """Adds `repeats` measurements of `updates` updates each, and writes a trace of as many more updates."""
    limit, plan = product_flops(training.runtime), plan_epoch(training)
    fit_memory(training, plan)
    is_cuda = training.runtime.device.type == "cuda"
    with closing(endless_updates(training, plan)) as stream:

        def trial() -> tuple[dict[str, float], float]:
            """Performs `updates` updates; returns their metrics and their FLOP/s."""
            before = training.counters.flops
            interval, seconds = timed_updates(training, stream, updates)
            return interval.record(training.world), (training.counters.flops - before) / seconds

        for _ in range(5 if is_cuda else 1):
            trial()
        trials = [trial() for _ in range(repeats)]
        memory = training.runtime.peak_memory_mib
        if trace:
            activity = torch.profiler.ProfilerActivity
            with torch.profiler.profile(activities=[activity.CPU, *[activity.CUDA] * is_cuda]) as profiler:
                trial()
            with tempfile.TemporaryDirectory() as folder:
                profiler.export_chrome_trace(f"{folder}/trace.json")
                trace.write(Path(f"{folder}/trace.json").read_bytes())
            order = f"self_{training.runtime.device.type}_time_total"
            console.info(profiler.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=40))
    report.add("speed", "target tok/s", *(record["target_tokens_per_second"] for record, _ in trials))
    report.add("padding", "%", *(100 * record["padding_share"] for record, _ in trials))
    report.add("peak memory", "MiB", memory)
    report.add("achieved", "TFLOP/s", *(flops / 1e12 for _, flops in trials))
    report.add("large product", "TFLOP/s", limit / 1e12)
    report.add("utilisation", "%", *(100 * flops / limit for _, flops in trials))


def product_flops(runtime: Runtime) -> float:
    """Returns the FLOP/s of large square matrix products in the runtime's precision, the best of a few trials."""
    from torch.utils.benchmark import Timer  # initialises CUDA, after which no process with a GPU can be forked

    size = 8192 if runtime.device.type == "cuda" else 2048
    factors = torch.randn(2, size, size, device=runtime.device).to(runtime.dtype)
    timer = Timer("torch.mm(*factors)", globals={"factors": factors}, num_threads=torch.get_num_threads())
    return 2 * size**3 / min(timer.blocked_autorange(min_run_time=1).times)


@app.command(no_args_is_help=True)
@flags()
def generate(
    languages: DirectionConfig,
    search: SearchConfig,
    runtime: RuntimeConfig,
    checkpoint: Annotated[str | None, Option(help="Checkpoint to translate with.")] = None,
    arch: Annotated[
        str | None, Option(help="Architecture of an untrained model to use instead; also give --max-length-offset 0.")
    ] = None,
    input: Annotated[
        str | None, Option(help="Raw text to translate; required with --checkpoint. With --arch, text is generated.")
    ] = None,
    lines: Annotated[
        int, Option(min=1, max=10_000_000, help="Number of lines to translate, from the start of the input.")
    ] = 1000,
    mean_length: MeanLength = 28,
    vocab_size: VocabSize = 37000,
    workers: Annotated[int, Option(min=1, max=MOST_PROCESSES, help="Number of processes that translate.")] = 1,
    repeats: Repeats = 5,
    as_json: AsJson = False,
) -> None:
    """Measure translation: sentences and target tokens per second, memory, and the time for a single sentence."""
    if (checkpoint is None) == (arch is None):
        raise NmtError("give either --checkpoint, or --arch for an untrained model")
    if (checkpoint is None) != (input is None):
        raise NmtError("--checkpoint needs text, and --arch generates its own; give --input with --checkpoint only")
    with tempfile.TemporaryDirectory() as folder:
        if arch:
            generated = Generated(vocab_size, mean_length, lines)
            codec = generated.codec()
            path, text = f"{folder}/untrained.safetensors", generated.sentences(codec)
            save_untrained(Path(path), model_config(arch), codec)
        else:
            path, text = str(checkpoint), list(islice(read_lines(str(input)), lines))
            if not text:
                raise NmtError(f"--input {input} is empty; give text to translate")
        subject = {"model": f"{arch}, untrained" if arch else path, "lines": len(text), "--beam": search.beam}
        report = Report(subject | changed(search) | changed(runtime))
        add_translation_figures(report, path, text, languages, search, runtime, workers, repeats)
    report.print(as_json)


def add_translation_figures(
    report: Report,
    checkpoint: str,
    lines: Sequence[str],
    languages: DirectionConfig,
    search: SearchConfig,
    runtime: RuntimeConfig,
    workers: int,
    repeats: int,
) -> None:
    """Adds figures of translating the lines `repeats` times, after one translation to warm up."""
    start_up = []
    for _ in range(repeats):  # the command, for one sentence
        started = time.perf_counter()
        options = search.to_dict() | runtime.to_dict() | languages.to_dict()
        run_nmt("generate", checkpoint, options=options, text=lines[0])
        start_up.append(time.perf_counter() - started)
    job = TranslationJob((checkpoint,), runtime, search, output="jsonl")
    direction = Direction.of(languages.source_lang, languages.target_lang)
    maker = UnitMaker(read_text_config(checkpoint), Protected(), direction)
    units = (maker.complete(Unit(line)) for line in chain.from_iterable(repeat(lines, 1 + repeats)))
    # Several processes work ahead across repeats, so a single trial measures all repeats together.
    trials, passes = (repeats, 1) if workers == 1 else (1, repeats)
    seconds, pieces = [], []
    # As many lines as there are in a pass are sorted by length together.
    silent = console.Progress("translating", None, "sentence", lines=False, bar=False)
    with closing(local(job, Chunks(in_chunks(units, len(lines))), workers, silent)) as outcomes:
        stream = records_in_order(outcomes)
        list(islice(stream, len(lines)))
        for _ in range(trials):
            started = time.perf_counter()
            records = list(islice(stream, passes * len(lines)))
            seconds.append(time.perf_counter() - started)
            pieces.append(sum(len(line.translations[0].pieces) + 1 for line in records))
        # Close to the peak, because freed memory is kept.
        memory = memory_of_all_processes_mib(os.getpid()) if workers > 1 else None
    resolved = set_up(runtime)
    report.subject["device"] = f"{resolved.name}, {resolved.precision}" + f", {workers} processes" * (workers > 1)
    report.add("speed", "sentences/s", *(passes * len(lines) / s for s in seconds))
    report.add("output", "target tok/s", *(n / s for n, s in zip(pieces, seconds, strict=True)))
    if workers == 1:
        report.add("peak memory", "MiB", resolved.peak_memory_mib)
    elif resolved.device.type == "cpu" and memory is not None:
        report.add("memory of all processes", "MiB", memory)
    report.add("start-up", "s", *start_up)


def save_untrained(path: Path, model: ModelConfig, codec: TextCodec) -> None:
    """Writes a checkpoint of an untrained model."""
    weights = {name: tensor.detach() for name, tensor in new_model(model, codec).state_dict().items()}
    save_checkpoint(Checkpoint(model, codec, weights, provenance={}), path)


@app.command(no_args_is_help=True)
@flags()
def preprocess(config: DataConfig, repeats: Repeats = 5, as_json: AsJson = False) -> None:
    """Measure preprocessing: lines per second over all steps and splits, and memory.

    The options are the same as for nmt preprocess. The benchmark writes temporary folders beside --dest.
    """
    codec = read_codec(config.like) if config.like else None
    subwords = config.like or config.subword_model or f"{config.subword}, trained"
    report, seconds, lines = Report({"corpus": ", ".join(config.train), "subwords": subwords}), [], 0
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(dir=Path(config.dest).absolute().parent) as folder:
            started = time.perf_counter()
            write_data_folder(replace(config, dest=f"{folder}/data"), like=codec)
            seconds.append(time.perf_counter() - started)
            splits = DataFolder.open(f"{folder}/data").meta.splits.values()
            lines = sum(2 * (split.pairs + sum(split.dropped.values())) for split in splits)
    report.add("speed", "lines/s", *(lines / s for s in seconds))
    report.add("peak memory of the main process", "MiB", process_peak_mib())
    report.print(as_json)


# The benchmark computes the padding of this many updates and makes batches from them.
SAMPLED_UPDATES = 200


@app.command()
@flags()
def batching(
    config: PlanConfig,
    data: Annotated[str | None, Option(help="Data folder; by default, sentences are generated.")] = None,
    pairs: Annotated[int, Option(min=1, max=1_000_000_000, help="Generated sentence pairs.")] = 1_000_000,
    mean_length: MeanLength = 28,
    vocab_size: VocabSize = 37000,
    repeats: Repeats = 3,
    as_json: AsJson = False,
) -> None:
    """Measure batching: opening a data folder, planning an epoch, making batches, and memory.

    WMT14 English-French has 36 million pairs. That many generated pairs need 5 GB of temporary disk space.
    """
    with data_folder(data, Generated(vocab_size, mean_length, pairs)) as path:
        report = Report({"data": data or "generated", "--batch-tokens": config.batch_tokens} | changed(config))
        add_batching_figures(report, path, config, repeats)
    report.print(as_json)


def add_batching_figures(report: Report, data: str, config: PlanConfig, repeats: int) -> None:
    """Adds figures of opening the folder, planning an epoch and making batches, each done `repeats` times."""

    def planned(epoch: int) -> tuple[ParallelSplit, UpdatePlan, float, float]:
        started = time.perf_counter()
        split = DataFolder.open(data).split("train")
        opened, lengths = time.perf_counter(), (split.source.lengths, split.target.lengths)
        tokens, groups = config.batch_tokens, config.batch_groups
        plan = make_plan(lengths, batch_tokens=tokens, groups=groups, seed=1, epoch=epoch)
        return split, plan, opened - started, time.perf_counter() - opened

    planned(0)  # what happens only the first time, such as imports, is not measured
    opening, planning = zip(*(planned(epoch)[2:] for epoch in range(repeats)), strict=True)
    gc.collect()  # so that no garbage from before is freed meanwhile
    tracemalloc.start()  # slows everything down, so memory is measured by itself
    split, plan, *_ = planned(0)
    kept, peak = (size / 2**20 for size in tracemalloc.get_traced_memory())
    tracemalloc.stop()
    sizes = [max(plan.tokens(index)) for index in range(len(plan))]
    device_tokens = config.tokens_at_once("cuda", 1)

    def loading_speed() -> float:
        """Returns how many target tokens per second are made into batches."""
        started = time.perf_counter()
        with closing(prepared_updates(split, plan, device_tokens)) as updates:
            tokens = sum(update.target_tokens for update in islice(updates, SAMPLED_UPDATES))
        return tokens / (time.perf_counter() - started)

    report.subject |= {"pairs": len(split), "updates an epoch": len(plan)}
    report.add("opening", "s", *opening)
    report.add("planning an epoch", "s", *planning)
    report.add("peak memory of planning", "MiB", peak)
    report.add("memory of a plan", "MiB", kept)
    for name, size in (("smallest", min(sizes)), ("median", statistics.median(sizes)), ("largest", max(sizes))):
        report.add(f"{name} update", "tokens", size)
    report.add("padding", "%", 100 * plan.padding_share(device_tokens, SAMPLED_UPDATES))
    report.add("making batches", "target tok/s", *(loading_speed() for _ in range(repeats)))


def run_nmt(*arguments: str, options: Mapping[str, Any], text: str = "") -> None:
    """Runs a command and waits until it ends.

    Args:
        options: values by field name; None leaves an option out, and a tuple has several values.
        text: the standard input.
    """
    words = [word for name, value in options.items() if value is not None for word in flag_words(name, value)]
    command = [sys.executable, "-m", "nmt", *arguments, *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise NmtError(f"nmt {arguments[0]}, started by the benchmark, failed: {lines[-1].removeprefix('error: ')}")


def changed(config: Config) -> dict[str, Any]:
    """Returns the options that do not have their default, by flag."""
    return {flag_name(name): value for name, value in config.variants().items()}


@contextmanager
def data_folder(path: str | None, generated: "Generated") -> Iterator[str]:
    """Yields the data folder, or a temporary one with generated sentences."""
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        try:
            generated.write(Path(folder) / "data")
        except NmtError as error:
            raise NmtError(
                f"the generated data could not be written ({error}); set TMPDIR to a folder with more free space"
            ) from error
        yield f"{folder}/data"


# A generated corpus with realistic sentence lengths, for measurements without data

# Standard deviations of log(length) and of log(target length / source length) in news text.
LENGTH_SPREAD = 0.6
RATIO_SPREAD = 0.2
LONGEST = 256
PAIRS_AT_ONCE = 500_000
SPECIAL = EOS + 1


@dataclass(frozen=True)
class Generated:
    """The description of a generated corpus.

    Attributes:
        vocab_size: the number of pieces; every piece is a word.
        mean_length: the mean number of pieces per sentence. Lengths are limited to 256, which lowers large means a
            little.
        pairs: the number of sentence pairs.
    """

    vocab_size: int
    mean_length: float
    pairs: int

    def lengths(self, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draws the lengths of the source and target sentences in pieces, without EOS."""
        common = random.normal(np.log(self.mean_length) - LENGTH_SPREAD**2 / 2, LENGTH_SPREAD, self.pairs)
        ratio = random.normal(0, RATIO_SPREAD, self.pairs)
        source, target = (np.exp(common + shift).round().astype(np.int64) for shift in (-ratio / 2, ratio / 2))
        return np.clip(source, 1, LONGEST), np.clip(target, 1, LONGEST)

    def tokens(self, random: np.random.Generator, lengths: np.ndarray) -> np.ndarray:
        """Draws the ids of sentences of these lengths, all in one array; word n is about 1/n as frequent as word 1."""
        words = self.vocab_size - SPECIAL
        return (SPECIAL - 1 + words ** random.random(int(lengths.sum()))).astype(token_type(self.vocab_size))

    def codec(self) -> TextCodec:
        """Returns a codec whose vocabulary is the generated words."""
        # A sentencepiece model whose pieces are the words w0, w1, … and the special pieces.
        words, model = self.vocab_size - SPECIAL, io.BytesIO()
        options: dict[str, Any] = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
        options |= {"vocab_size": self.vocab_size, "max_sentence_length": 1 << 30, "minloglevel": 2}
        text = iter([" ".join(f"w{i}" for i in range(words))])
        options |= {"sentence_iterator": text, "model_writer": model, "model_type": "word"}
        sentencepiece.SentencePieceTrainer.train(**options)
        subword = Subword.from_bytes(model.getvalue(), "bpe", "the generated vocabulary")
        languages = {"source_lang": "xx", "target_lang": "yy"}
        plain = dict.fromkeys(("source_tokenizer", "target_tokenizer", "normalize_punctuation"), "none")
        values = languages | plain | {"lowercase": False, "subword": "bpe", "joint_vocab": True}
        return TextCodec(TextConfig.from_dict(values, "the generated vocabulary"), subword, subword)

    def write(self, folder: Path) -> None:
        """Writes a data folder with a training set of `pairs` pairs and a small validation set."""
        random, codec, splits = np.random.default_rng(0), self.codec(), {}
        with new_folder(folder, "--dest") as data:
            for name, pairs in (("train", self.pairs), ("valid", min(self.pairs, 200))):
                raw = codec.config.trained if name == "valid" else ()
                with SplitWriter(data, name, codec.config, raw=raw) as split:
                    for first in range(0, pairs, PAIRS_AT_ONCE):
                        both = replace(self, pairs=min(PAIRS_AT_ONCE, pairs - first)).lengths(random)
                        split.append(*(Flat(self.tokens(random, lengths), lengths) for lengths in both))
                splits[name] = split.meta
            complete(data, codec, splits, {"generated": vars(self)})

    def sentences(self, codec: TextCodec) -> list[str]:
        """Returns the source sentences as text."""
        random = np.random.default_rng(0)
        lengths, _ = self.lengths(random)
        ends = np.cumsum(lengths)[:-1]
        return codec.source.decode([ids.tolist() for ids in np.split(self.tokens(random, lengths), ends)])


if __name__ == "__main__":
    main(*sys.argv[1:])
