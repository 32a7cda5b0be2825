"""Invented parallel text, a small trained model, and other fixtures that several test files use."""

import fcntl
import io
import os
import platform
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from multiprocessing import forkserver
from pathlib import Path

import commands
import forks
import numpy as np
import pytest
import sentencepiece
import torch
from commands import LANGS, SMALL, TRAIN
from hypothesis import HealthCheck, settings

from nmt import console
from nmt.data.arrays import TokenArray

pytest_plugins = ["checkpoints", "stand_ins", "two_ranks"]  # whose fixtures several files use

# Without a GPU, Triton interprets its kernels, if it is installed.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# As in the processes that tests start: sums of several threads are rounded differently.
torch.set_num_threads(1)

# A shell ignores these signals in its background jobs. The commands that the tests start would ignore them too.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)

# Every run has the same examples, and a test that is slow on a busy machine does not fail.
settings.register_profile("nmt", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("nmt")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", help="run the tests that are marked as nightly, and no others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[item.get_closest_marker("nightly") is not None].append(item)
    items[:] = chosen[config.getoption("--nightly")]
    config.hook.pytest_deselected(items=chosen[not config.getoption("--nightly")])


def pytest_unconfigure() -> None:
    forks.end()


SIZES = {"train": 300, "valid": 20, "test": 10}  # pairs of the invented corpora
_SYLLABLES = ["ba", "de", "ki", "lo", "mu", "na", "po", "ra", "si", "tu", "ve", "zo", "ä", "ß"]


def invented_pairs(pairs: int, seed: int = 0) -> list[tuple[str, str]]:
    """Returns pairs of sentences of invented words. The target is the source spelt backwards."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 4))) for _ in range(200)]
    sources = [draw.choices(words, k=draw.randint(2, 12)) for _ in range(pairs)]
    return [(" ".join(source).capitalize() + ".", " ".join(source)[::-1] + " !") for source in sources]


def token_arrays(*columns: Sequence[np.ndarray]) -> list[TokenArray]:
    """Returns each column of sentences as it lies in a data folder."""
    return [TokenArray(np.concatenate(column), np.cumsum([0, *map(len, column)])) for column in columns]


def write_pairs(prefix: Path, pairs: list[tuple[str, str]]) -> str:
    """Writes pairs to PREFIX.en and PREFIX.de, and returns the prefix."""
    for side, lang in enumerate(("en", "de")):
        Path(f"{prefix}.{lang}").write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return str(prefix)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keeps exported models of an earlier state of the package out of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _quick_system() -> Iterator[None]:
    """Preloads all modules of workers once, and does not wait until files would survive a power failure."""
    modules = ["nmt.translate.job", "nmt.serving.workers", "nmt.data.codec", "nmt.cleaning.clean"]
    forkserver.set_forkserver_preload(modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forkserver, "set_forkserver_preload", lambda _: None)
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def printing() -> Iterator[None]:
    """Prints messages as commands do, in a test that calls the library itself."""
    with console.printing():
        yield


@pytest.fixture
def write_corpus(tmp_path: Path) -> Callable[..., str]:
    """Returns a function that writes pairs to NAME.en and NAME.de in the test's folder and returns their prefix."""
    return lambda name, pairs: write_pairs(tmp_path / name, pairs)


@pytest.fixture
def tiny_corpus(write_corpus: Callable[..., str]) -> dict[str, str]:
    """Returns the prefixes of 300 training, 20 validation and 10 test pairs of invented text (en, de)."""
    return {name: write_corpus(name, invented_pairs(size, seed)) for seed, (name, size) in enumerate(SIZES.items())}


@pytest.fixture(scope="module")
def trained(cached_training: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with train.en, train.de, …, data/, run/ (40 updates, average.safetensors) and train.log.

    Each test module has its own copy, which its tests may change.
    """
    return Path(shutil.copytree(cached_training, tmp_path_factory.mktemp("pipeline") / "copy", symlinks=True))


@pytest.fixture(scope="session")
def cached_training(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder that `trained` copies.

    It is a copy of one that is made once for each state of the package and kept for later sessions. Another processor
    would compute other weights.
    """
    settings_of_products = {name: value for name, value in os.environ.items() if name.startswith(("MKL_", "ONEDNN_"))}
    versions = sys.version, torch.__version__, np.__version__, sentencepiece.__version__
    state = sha256(f"{versions} {_processor()} {settings_of_products}".encode())
    helpers = [Path(commands.__file__), Path(forks.__file__)]
    for path in (*sorted((pytestconfig.rootpath / "nmt").rglob("*.py")), Path(__file__), *helpers):
        state.update(path.read_bytes())
    folder = pytestconfig.rootpath / ".pytest_cache" / f"trained-{state.hexdigest()[:16]}"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "trained.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for outdated in folder.parent.glob("trained-*"):
                shutil.rmtree(outdated)
            _train_once(folder.with_name("trained-unfinished"))
            folder.with_name("trained-unfinished").rename(folder)
        return Path(shutil.copytree(folder, tmp_path_factory.mktemp("cached") / "copy", symlinks=True))


def _processor() -> str:
    """Returns what Linux says of the first processor, without what changes with time."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().split("\n\n")[0].splitlines() if cpuinfo.exists() else [platform.processor()]
    return "\n".join(line for line in lines if not line.startswith(("cpu MHz", "bogomips")))


def _train_once(folder: Path) -> None:
    """Makes the folder of `trained` with forked commands, whose numbers do not depend on what the tests do."""
    folder.mkdir()
    for seed, (name, size) in enumerate(SIZES.items()):
        write_pairs(folder / name, invented_pairs(size, seed))
    corpora = [f"--{name}={folder / name}" for name in ("train", "valid", "test")]
    forks.run("preprocess", *LANGS, *corpora, f"--dest={folder}/data", "--vocab-size=330", "--workers=1")
    training = forks.run("train", folder / "data", f"--save-dir={folder}/run", *TRAIN, *SMALL, "--max-updates=40")
    (folder / "train.log").write_text(training.errors)
    forks.run("average-checkpoints", folder / "run", "--last=2", f"--output={folder}/run/average.safetensors")


@pytest.fixture
def unprivileged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], AbstractContextManager[None]]:
    """Returns a context without root's privileges, in a folder with two subfolders that restrict access.

    closed/ may not be entered. unlisted/ may not be listed.
    """

    @contextmanager
    def work() -> Iterator[None]:
        monkeypatch.chdir(tmp_path)
        tmp_path.chmod(0o755)
        for name, mode in (("closed", 0), ("unlisted", 0o311)):
            Path(name).mkdir()
            Path(name).chmod(mode)
        user = os.geteuid()
        if user == 0:  # permissions do not stop root
            try:
                os.seteuid(65534)
            except OSError:
                pytest.skip("this container has one user, who is root")
        try:
            yield
        finally:
            os.seteuid(user)
            for name in ("closed", "unlisted"):
                Path(name).chmod(0o755)

    return work


def other_model(**options: object) -> bytes:
    """Trains a model with sentencepiece itself, with any of its options changed."""
    text, model = [line for pair in invented_pairs(400) for line in pair], io.BytesIO()
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    usual = {"vocab_size": 300, "model_type": "bpe", "byte_fallback": True, "minloglevel": 2} | ids
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(text), model_writer=model, **(usual | options))
    return model.getvalue()
