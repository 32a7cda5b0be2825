"""Functions for programs in Python. They take the flags of the commands with the same names as keyword arguments."""

import inspect
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from nmt import extensions
from nmt.config import AlignConfig, CorpusConfig, DataConfig, ModelConfig, ScoreConfig, TimeConfig, TrainConfig
from nmt.config.options import Config, with_tuples
from nmt.config.translation import MetricConfig
from nmt.errors import OptionError
from nmt.scoring import MetricScore, corpus_scores

if TYPE_CHECKING:
    from nmt.aligning.job import AlignedPair

_Options = ParamSpec("_Options")
_A = TypeVar("_A")
_B = TypeVar("_B")
_Result = TypeVar("_Result")


class _Takes(Generic[_Options]):
    """A decorator that gives a function the fields of a dataclass as keyword arguments, with their types.

    The function gets the options that the caller gave as a dict, its last argument.

    Args:
        config: the dataclass.
        optional: fields without a default value that need not be given.
    """

    def __init__(self, config: Callable[_Options, Config], optional: Container[str] = ()) -> None:
        self._options = [
            option.replace(default=None) if option.name in optional and option.default is option.empty else option
            for option in inspect.signature(config).parameters.values()
        ]

    @overload
    def __call__(self, function: Callable[[dict[str, Any]], _Result]) -> Callable[_Options, _Result]: ...

    @overload
    def __call__(
        self, function: Callable[[_A, dict[str, Any]], _Result]
    ) -> Callable[Concatenate[_A, _Options], _Result]: ...

    @overload
    def __call__(
        self, function: Callable[[_A, _B, dict[str, Any]], _Result]
    ) -> Callable[Concatenate[_A, _B, _Options], _Result]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(function)
        *positional, _ = own.parameters.values()
        signature = own.replace(parameters=[*positional, *self._options])

        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            arguments = signature.bind(*args, **options).arguments  # raises TypeError for a wrong name
            own_arguments = [arguments.pop(parameter.name) for parameter in positional]
            return function(*own_arguments, with_tuples(arguments))

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call


def _chosen(config: type[Config], options: dict[str, Any]) -> dict[str, Any]:
    return {f.name: options[f.name] for f in fields(config) if f.name in options}  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class _Preprocessing(DataConfig, CorpusConfig):
    """All flags of `nmt preprocess` that are about data."""


@_Takes(_Preprocessing)
def preprocess(options: dict[str, Any]) -> Path:
    """Turns parallel text into a data folder that `train` reads, like `nmt preprocess`.

    Args:
        options: the flags of `nmt preprocess`, such as `source_lang="en", target_lang="de", train=("corpus",),
            valid="dev", dest="data", vocab_size=8000`. Unlike the command, the function works in this process
            unless `workers` is given.

    Returns:
        The data folder, `dest`.

    Raises:
        OptionError: an option has a wrong value.
        NmtError: a corpus cannot be read, or `dest` exists.
        BusyError: another process makes the same folder.
        StoppedError: a signal stopped the work; the same call resumes it.
    """
    from nmt.checkpoint_format import read_codec
    from nmt.config import JobConfig
    from nmt.corpora.reading import with_plain_text
    from nmt.data.preprocess import preprocess as make_folder
    from nmt.interop.hub import with_files
    from nmt.jobs.run import executing

    config = with_files(DataConfig(**{"workers": 1} | _chosen(DataConfig, options)))
    files = CorpusConfig(**_chosen(CorpusConfig, options))
    config = with_plain_text(config, ("train", "valid", "test"), config.pairs, files)
    with executing(JobConfig(), config.workers) as execution:
        make_folder(config, execution, read_codec(config.like) if config.like else None)
    return Path(config.dest)


@_Takes(AlignConfig)
def align(source: str | Path, target: str | Path, options: dict[str, Any]) -> "list[AlignedPair]":
    """Makes sentence pairs of two documents, or of two folders of documents, like `nmt align`.

    Args:
        source, target: a document and its translation, or their folders.
        options: the flags of `nmt align` that are about input and comparison, such as `source_lang="de",
            target_lang="fr"`.

    Returns:
        The pairs in order, each with its score and its places.

    Raises:
        OptionError: an option has a wrong value.
        NmtError: no documents can be aligned. Of several, those that can be are.
    """
    from nmt.aligning.documents import document_pairs
    from nmt.aligning.job import aligned
    from nmt.interop.hub import with_files

    config = with_files(AlignConfig(**options))
    paths = document_pairs(str(source), str(target), config.languages, config.format)
    with aligned(paths, config) as alignments:
        return [pair for alignment in alignments for pair in alignment.pairs(config.languages)]


@dataclass(frozen=True, kw_only=True)
class _Training(TrainConfig, ModelConfig, TimeConfig):
    """All flags of `nmt train` that are options of a training."""


@_Takes(_Training, optional=[field.name for field in fields(ModelConfig)])
def train(data: str | Path, options: dict[str, Any]) -> Path:
    """Trains a model in this process, like `nmt train`, or resumes the training in `save_dir`.

    With torchrun, each of its processes calls this function. A signal such as Ctrl-C stops the training when its
    state is saved; a second one ends the process at once.

    Args:
        data: the data folder that `preprocess` wrote.
        options: the flags of `nmt train`, such as `save_dir="run", arch="transformer_tiny", max_updates=1000,
            dropout=0.2` or `save_dir="run", hours=2`.

    Returns:
        The checkpoint to use: average.safetensors in the run folder with `average_last` or a time limit, and
        otherwise best.safetensors.

    Raises:
        OptionError: an option has a wrong value, or options do not go together.
        NmtError: the data or the run folder cannot be used.
        DamagedError: a file is damaged.
        BusyError: another training uses the run folder.
        MemoryRanOutError: memory ran out; the state is saved. A smaller `device_tokens` or its `advice` helps.
        StoppedError: a signal stopped the training; the same call resumes it.
    """
    from nmt.interop.hub import with_files
    from nmt.training import hours
    from nmt.training.options import architecture
    from nmt.training.ranks import is_rank
    from nmt.training.run_folder import AVERAGE, BEST
    from nmt.training.train import train as train_model

    time = TimeConfig(**_chosen(TimeConfig, options))
    config = with_files(TrainConfig(**_chosen(TrainConfig, options)))
    model = {name: value for name, value in _chosen(ModelConfig, options).items() if value is not None}
    extensions.load(config.user_module)
    if config.gpus > 1 and not is_rank():
        raise OptionError(
            f"--gpus is {config.gpus}, but a Python program trains in one process; start the program with torchrun, or "
            f"use the command nmt train"
        )
    if time.seconds:
        hours.train_in_time(str(data), config, model, set(_chosen(TrainConfig, options)), time.seconds, estimate=False)
    elif config.arch or config.init_from:
        train_model(str(data), architecture(config, model), config)
    else:
        raise OptionError("the architecture is missing; give --arch, --init-from, --hours or --minutes")
    best, average = (Path(config.save_dir) / name for name in (BEST, AVERAGE))
    return average if (time.seconds or config.average_last) and average.exists() else best


@_Takes(MetricConfig)
def score(
    hypotheses: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]], options: dict[str, Any]
) -> dict[str, MetricScore]:
    """Scores translations against references with sacreBLEU, like `nmt score`.

    Args:
        hypotheses: the translations.
        references: their references, in the same order; or several such lists, if sentences have several references.
        options: the flags of `nmt score` that are about metrics, such as `metric=("bleu", "chrf"), target_lang="de"`.

    Returns:
        The score of each `metric` by its name, with its signature.

    Raises:
        TypeError: a list of lines is a single string, or a line is no string.
        OptionError: an option has a wrong value.
        NmtError: there is nothing to score, or a list of references has another length.
    """
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise TypeError("score takes lists of lines; put a single one in brackets")
    is_one_list = not len(references) or any(each is None or isinstance(each, str) for each in references)
    lists: Any = [references] if is_one_list else references
    config = ScoreConfig(**options)
    return dict(zip(config.metric, corpus_scores(hypotheses, lists, config.metric, config), strict=True))
