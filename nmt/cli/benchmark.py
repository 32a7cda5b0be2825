"""`nmt benchmark` measures how fast the other commands are on this machine."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from nmt.cli.flags import flags
from nmt.config import BatchConfig, DataConfig, DirectionConfig, ModelConfig, PlanConfig, RuntimeConfig, SearchConfig
from nmt.config.options import MOST_PROCESSES, Config, flag_name
from nmt.errors import NmtError
from nmt.model.architectures import model_config

if TYPE_CHECKING:
    from nmt.benchmark import Generated, Report

benchmark = typer.Typer(
    name="benchmark",
    help="Measure how fast training, translation, preprocessing and batching are on this machine.",
    no_args_is_help=True,
)

Repeats = Annotated[int, Option(min=1, max=10_000, help="Number of measurements; the report shows median and range.")]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object instead of a table.")]
MeanLength = Annotated[float, Option(min=1, max=256, help="Mean sentence length of generated data, in pieces.")]
VocabSize = Annotated[int, Option(min=8, max=1_000_000, help="Vocabulary size of generated data.")]


@benchmark.command("train", no_args_is_help=True)
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

    Token counts include EOS and exclude padding. Generated sentences have log-normal lengths.
    """
    model = model_config(arch, **model_overrides)
    from nmt.benchmark import Generated, benchmark_training

    # Enough generated pairs to fill batches of every length.
    with _data(data, Generated(vocab_size, mean_length, pairs=100_000)) as folder:
        report = benchmark_training(folder, model, batches, repeats=repeats, updates=updates, profile=profile)
    subject = {"architecture": arch, "model": model.in_words(), "data": data or "generated"}
    _print(report, subject | {"--batch-tokens": batches.batch_tokens} | _changed(batches), as_json)


@benchmark.command("generate", no_args_is_help=True)
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
    if checkpoint and not input:
        raise NmtError("--checkpoint needs text to translate; give --input")
    if arch and input:
        raise NmtError("an untrained model (--arch) translates generated text only; leave out --input")
    from nmt.benchmark import Generated, benchmark_translation, removed_at_the_end, save_untrained
    from nmt.text.corpus import read_lines

    with removed_at_the_end(tempfile.TemporaryDirectory()) as folder:
        if arch:
            model = model_config(arch)
            generated = Generated(vocab_size, mean_length, lines)
            codec = generated.codec()
            text = generated.sentences(codec)
            path = f"{folder}/untrained.safetensors"
            save_untrained(Path(path), model, codec)
        else:
            path, text = str(checkpoint), list(islice(read_lines(str(input)), lines))
            if not text:
                raise NmtError(f"--input {input} is empty; give text to translate")
        report = benchmark_translation(path, text, languages, search, runtime, workers=workers, repeats=repeats)
    subject = {"model": f"{arch}, untrained" if arch else path, "lines": len(text), "--beam": search.beam}
    _print(report, subject | _changed(search) | _changed(runtime), as_json)


@benchmark.command("preprocess", no_args_is_help=True)
@flags()
def preprocess(config: DataConfig, repeats: Repeats = 5, as_json: AsJson = False) -> None:
    """Measure preprocessing: lines per second over all steps and splits, and memory.

    The options are the same as for nmt preprocess. The benchmark writes temporary folders beside --dest.
    """
    from nmt.benchmark import benchmark_preprocessing

    _print(benchmark_preprocessing(config, repeats=repeats), {}, as_json)


@benchmark.command("batching")
@flags()
def batching(
    plan: PlanConfig,
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
    from nmt.benchmark import Generated, benchmark_batching

    with _data(data, Generated(vocab_size, mean_length, pairs)) as folder:
        report = benchmark_batching(folder, plan, repeats=repeats)
    _print(report, {"data": data or "generated", "--batch-tokens": plan.batch_tokens} | _changed(plan), as_json)


@contextmanager
def _data(folder: str | None, generated: "Generated") -> Iterator[str]:
    """Yields the data folder, or a temporary one with generated sentences."""
    if folder is not None:
        yield folder
        return
    from nmt.benchmark import removed_at_the_end

    with removed_at_the_end(tempfile.TemporaryDirectory()) as temporary:
        try:
            generated.write(Path(temporary) / "data")
        except NmtError as error:
            raise NmtError(
                f"the generated data could not be written ({error}); set TMPDIR to a folder with more free space"
            ) from error
        yield f"{temporary}/data"


def _changed(config: Config) -> dict[str, Any]:
    """Returns the options that do not have their default, by flag."""
    return {flag_name(name): value for name, value in config.variants().items()}


def _print(report: "Report", subject: dict[str, Any], as_json: bool) -> None:
    report.subject = subject | report.subject
    print(json.dumps({**report.subject, "figures": report.figures}) if as_json else report)
