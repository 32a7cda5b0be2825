"""The format of data folders, which `nmt preprocess` writes and training maps into memory.

A data folder holds these files; all numbers are little-endian:
    meta.json           languages, text processing, counts and options, and the size and SHA-256 of all other files
    subword.model       the joint subword model; for separate vocabularies, subword.en.model and subword.de.model
    train.en.tokens     the piece ids of all sentences end to end, without EOS; uint16 or uint32
    train.en.offsets    the position in the tokens where each sentence starts, and the end of the last one; int64. If a
                        sentence has several encodings, they follow each other like sentences
    train.en-de.links   with --alignments, the numbers of a source and a target piece that are linked, in turn; uint16
    train.en-de.offsets the position in the alignments where each sentence starts, and the end of the last one; int64
    valid.en.txt        the raw text, for scoring; the split train has none
Both languages of every split have such files. The splits are train, valid, test, test1, test2, …

For a model of several languages, the sides are called source and target: train.source.tokens. The ids have the tokens
of languages. The raw text of each direction has files of its own: valid.en-de.en.txt and valid.en-de.de.txt.

The sizes of all files are compared with meta.json when a folder is opened, and their hashes before training. Code
that reads the files trusts their content.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass, field
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from nmt import __version__, console
from nmt.data.arrays import EpochTokens, MixedOrder, Mixture, TokenArray
from nmt.errors import DamagedError, NmtError
from nmt.files import Output, digest_of, digest_of_json, loading, remove_partial_files, replaced_file
from nmt.text.codec import TextCodec, load_subword
from nmt.text.directions import Direction
from nmt.text.text_config import TextConfig

TRAIN = "train"
OFFSET_TYPE = np.dtype("<i8")


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Returns the integer type of stored tokens: two bytes if the vocabulary is small enough, otherwise four."""
    return np.dtype("<u2" if vocab_size <= 1 << 16 else "<u4")


def _sides(config: TextConfig) -> tuple[str, str]:
    """Returns what the names of files call the sides: their languages, if they have one each."""
    return ("source", "target") if config.languages else (config.source_lang, config.target_lang)


def array_names(split: str, config: TextConfig) -> list[tuple[str, str]]:
    """Returns the file names of the numbers and the offsets of the source, the target and the alignments of a split."""
    source, target = _sides(config)
    stems = (source, "tokens"), (target, "tokens"), (f"{source}-{target}", "links")
    return [(f"{split}.{stem}.{ending}", f"{split}.{stem}.offsets") for stem, ending in stems]


def raw_names(split: str, direction: Direction, config: TextConfig) -> tuple[str, str]:
    """Returns the file names of a split's raw text in one direction: of its source and its target."""
    stem = f"{split}.{direction}" if config.languages else split
    return f"{stem}.{direction.source}.txt", f"{stem}.{direction.target}.txt"


def model_names(config: TextConfig) -> tuple[str, str]:
    """Returns the file names of the source and the target subword model, which may be the same."""
    if config.one_model:
        return "subword.model", "subword.model"
    source, target = _sides(config)
    return f"subword.{source}.model", f"subword.{target}.model"


SCHEMA_VERSION = 2
META = "meta.json"


@dataclass(frozen=True)
class FileMeta:
    """The size of a file in bytes, and the SHA-256 of its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitMeta:
    """The description of a split.

    Attributes:
        source_encodings, target_encodings: how many encodings each sentence has.
        corpora: the prefixes of the files that it was made from.
        directions, sizes: for a model of several languages, the direction of each corpus, such as `de en`, and how
            many of the pairs are from it. The pairs of a corpus follow those of the corpus before.
        dropped: the numbers of training pairs that were dropped, by reason.
        mixture: the corpora and their shares of an epoch; None if an epoch has each pair once.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    source_encodings: int = 1
    target_encodings: int = 1
    corpora: Sequence[str] = ()
    directions: Sequence[str] = ()
    sizes: Sequence[int] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    mixture: Mixture | None = None


@dataclass(frozen=True)
class Meta:
    """The content of meta.json."""

    text: dict[str, Any]
    splits: dict[str, SplitMeta]
    files: dict[str, FileMeta]
    options: Mapping[str, Any]
    nmt_version: str = __version__
    schema_version: int = SCHEMA_VERSION

    @property
    def fingerprint(self) -> str:
        """A hash of all that training depends on, which does not depend on where and when the data was made."""
        files = {name: file.sha256 for name, file in self.files.items()}
        mixtures = {name: split.mixture and asdict(split.mixture) for name, split in self.splits.items()}
        return digest_of_json([self.schema_version, self.text, files, mixtures])


def read_meta(folder: Path) -> Meta:
    """Returns the content of the meta.json of a data folder."""
    path = folder / META
    try:
        content = json.loads(path.read_bytes())
        version = content["schema_version"]
        if version == SCHEMA_VERSION and content.pop("sha256") == digest_of_json(content):
            files = {name: FileMeta(**file) for name, file in content.pop("files").items()}
            splits = {}
            for name, split in content.pop("splits").items():
                mixture = split.pop("mixture")
                splits[name] = SplitMeta(**split, mixture=Mixture(*map(tuple, mixture.values())) if mixture else None)
            return Meta(splits=splits, files=files, **content)
    except (FileNotFoundError, NotADirectoryError) as error:
        why = f"is not a data folder (it has no {META})" if os.path.exists(folder) else "does not exist"
        raise NmtError(f"{folder} {why}; give a folder that nmt preprocess made") from error
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise NmtError(f"{path} is damaged ({error!r:.80}); run nmt preprocess again") from error
    if version != SCHEMA_VERSION:
        problem = f"{folder} has schema version {version!r:.20}, but this nmt reads version {SCHEMA_VERSION}"
        raise NmtError(f"{problem}; run nmt preprocess again, or use the version of nmt that made it")
    raise NmtError(f"{path} is damaged or was edited: its SHA-256 is not that in it; run nmt preprocess again")


_COPY_AGAIN = "copy the data folder again or run nmt preprocess again"


@dataclass(frozen=True)
class ParallelSplit:
    """Both sides of a split. Sentence i of the target is the translation of sentence i of the source.

    Attributes:
        alignments: word alignments in pieces: for each sentence, the numbers of a source and a target piece, in turn.
        mixture: the corpora of the split and their shares of an epoch; None if an epoch has each pair once.
        given: the number of tokens at the beginning of each target that are given, and not predicted.
    """

    source: TokenArray
    target: TokenArray
    alignments: TokenArray | None = None
    mixture: Mixture | None = field(default=None, kw_only=True)
    given: int = field(default=0, kw_only=True)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def longest(self) -> int:
        """The number of tokens of the longest encoding of any sentence on either side, EOS included."""
        return max(self.source.longest, self.target.longest)

    def in_epoch(self, seed: int, epoch: int) -> "ParallelSplit":
        """Returns what an epoch trains on: the pairs of a mixture, and one of the encodings of each sentence."""
        order = MixedOrder(self.mixture, seed, epoch) if self.mixture else None

        def visited(side: TokenArray, seed: int = 0, skips: int = 0) -> TokenArray:
            if order is None and side.encodings == 1:
                return side
            return EpochTokens(side.tokens, side.offsets, side.encodings, epoch, order, seed, skips)

        return ParallelSplit(
            visited(self.source, 2 * seed),
            visited(self.target, 2 * seed + 1, skips=1),
            self.alignments and visited(self.alignments),
            given=self.given,
        )

    def rows(self, rows: range) -> "ParallelSplit":
        """Returns successive pairs of a split other than train, without alignments."""
        return ParallelSplit(self.source.rows(rows), self.target.rows(rows), given=self.given)


class DataFolder:
    """An open data folder. Use `open` to make one."""

    def __init__(self, path: Path, meta: Meta, codec: TextCodec) -> None:
        self.path, self.meta, self.codec = path, meta, codec
        self._splits: dict[str, ParallelSplit] = {}
        self._is_verified = False

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Returns the data folder at `path`.

        Reads meta.json and the subword models, and compares the sizes of all files with meta.json.

        Raises:
            NmtError: `path` is not a data folder or has another schema version, or a file is missing, has the
                wrong size or is damaged.
        """
        path = Path(path)
        meta = read_meta(path)
        for name, recorded in meta.files.items():
            with loading(path / name, _COPY_AGAIN):
                size = (path / name).stat().st_size
            if size != recorded.bytes:
                raise DamagedError(f"{path / name} has {size:,} bytes instead of {recorded.bytes:,}; {_COPY_AGAIN}")
        return cls(path, meta, codec_in(path, TextConfig.from_dict(meta.text, str(path / META))))

    def verify(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Compares the content of every file with its SHA-256 in meta.json, once; ends early when `stopped()` is true.

        Raises:
            NmtError: a file cannot be read.
            DamagedError: a file is damaged.
        """
        if self._is_verified:
            return
        total = sum(recorded.bytes for recorded in self.meta.files.values())
        with console.Progress(f"verifying {self.path}", total, "byte", summary=False) as progress:
            for name, recorded in self.meta.files.items():
                digest = hashlib.sha256()
                with loading(self.path / name, _COPY_AGAIN), open(self.path / name, "rb") as file:
                    while (block := file.read(1 << 22)) and not stopped():
                        digest.update(block)
                        progress.advance(len(block))
                if stopped():
                    return
                if digest.hexdigest() != recorded.sha256:
                    raise DamagedError(f"{self.path / name} is damaged: {META} has another SHA-256; {_COPY_AGAIN}")
        self._is_verified = True

    def split(self, name: str) -> ParallelSplit:
        """Returns the split with this name: train, valid, test, test1, …"""
        self._check_split(name)
        if name not in self._splits:
            described, codec = self.meta.splits[name], self.codec
            source, target, alignments = array_names(name, codec.config)
            self._splits[name] = ParallelSplit(
                self._array(source, token_type(len(codec.source)), described.source_encodings),
                self._array(target, token_type(len(codec.target)), described.target_encodings),
                self._array(alignments, np.dtype("<u2")) if alignments[0] in self.meta.files else None,
                mixture=described.mixture,
                given=codec.config.given_tokens,
            )
        return self._splits[name]

    @property
    def trained(self) -> list[Direction]:
        """The directions of the training pairs of a model of several languages; empty for other models."""
        directions = [Direction.parsed(each) for each in dict.fromkeys(self.meta.splits[TRAIN].directions)]
        return [direction for direction in directions if not direction.is_copy]

    def directions(self, name: str) -> dict[Direction, range]:
        """Returns the directions of a split other than train, and the numbers of the pairs of each."""
        self._check_split(name)
        split = self.meta.splits[name]
        directions = [Direction.parsed(each) for each in split.directions] or self.codec.config.trained
        bounds = pairwise(accumulate(split.sizes or [split.pairs], initial=0))
        return {direction: range(*ends) for direction, ends in zip(directions, bounds, strict=True)}

    def raw_lines(self, name: str, direction: Direction | None = None) -> tuple[list[str], list[str]]:
        """Returns the raw source and target text of a split other than train, for one direction of several."""
        self._check_split(name)
        config, lines = self.codec.config, []
        for path in map(self.path.joinpath, raw_names(name, direction or config.trained[0], config)):
            if name == TRAIN:
                raise NmtError(f"{path} does not exist; a data folder keeps the text of valid and test only")
            with loading(path, _COPY_AGAIN):
                # text.corpus.read_lines would drop a "\r" at the end of a line, but here it is part of the text.
                lines.append(path.read_bytes().decode().split("\n")[:-1])
        return lines[0], lines[1]

    def _check_split(self, name: str) -> None:
        if name not in self.meta.splits:
            raise NmtError(f"{self.path} has no split {name!r}; it has {', '.join(self.meta.splits)}")

    def _array(self, names: tuple[str, str], kind: np.dtype[Any], encodings: int = 1) -> TokenArray:
        arrays = []
        for path, dtype in zip((self.path / name for name in names), (kind, OFFSET_TYPE), strict=True):
            with loading(path, _COPY_AGAIN):  # mmap refuses empty files; a split of empty lines has one
                is_empty = path.stat().st_size == 0
                arrays.append(np.empty(0, dtype) if is_empty else np.asarray(np.memmap(path, dtype, mode="r")))
        tokens, offsets = arrays
        return TokenArray(tokens, offsets, encodings)


def codec_in(folder: Path, config: TextConfig) -> TextCodec:
    """Returns the codec with the subword models in a data folder."""
    models = []
    for path in (folder / name for name in model_names(config)):
        with loading(path, _COPY_AGAIN):
            models.append(load_subword(path.read_bytes(), config.subword, str(path)))
    source, target = models
    return TextCodec.checked(config, source, source if config.one_model else target, str(folder))


# Writing, chunk by chunk


class Flat(NamedTuple):
    """Sentences end to end in one array.

    Attributes:
        tokens: the ids of all sentences, of type `token_type`; [tokens].
        lengths: the number of ids of each sentence, int64; [sentences].
    """

    tokens: np.ndarray
    lengths: np.ndarray


def flatten(sentences: list[list[int]], vocab_size: int) -> Flat:
    """Returns the sentences end to end in one array."""
    lengths = np.fromiter(map(len, sentences), dtype=np.int64, count=len(sentences))
    tokens = chain.from_iterable(sentences)
    return Flat(np.fromiter(tokens, dtype=token_type(vocab_size), count=int(lengths.sum())), lengths)


def _new_file(path: Path) -> AbstractContextManager[Output]:
    return replaced_file(path, "free some space or choose another --dest")


class SplitWriter(ExitStack):
    """Writes a split into a folder, chunk by chunk. Its files appear when the context ends without an error."""

    def __init__(
        self,
        folder: Path,
        name: str,
        config: TextConfig,
        *,
        raw: Sequence[Direction] = (),
        aligned: bool = False,
        encodings: Sequence[int] = (1, 1),
    ) -> None:
        super().__init__()
        names = array_names(name, config)[: 3 if aligned else 2]
        # The files of the tokens and of the offsets: of both sides, and perhaps of the alignments.
        self._files = [[self.enter_context(_new_file(folder / file)) for file in pair] for pair in names]
        for _, offsets in self._files:
            offsets.write(np.zeros(1, OFFSET_TYPE).tobytes())
        self._totals = [0] * len(names)
        self._raw = {
            each: [self.enter_context(_new_file(folder / file)) for file in raw_names(name, each, config)]
            for each in raw
        }
        self._encodings = encodings
        self.pairs = 0

    def append(self, *columns: Flat) -> None:
        """Adds sentence pairs: the source, the target and, if the split has them, the alignments."""
        for i, ((tokens, offsets), flat) in enumerate(zip(self._files, columns, strict=False)):
            tokens.write(flat.tokens.tobytes())
            offsets.write((self._totals[i] + np.cumsum(flat.lengths, dtype=OFFSET_TYPE)).tobytes())
            self._totals[i] += len(flat.tokens)
        self.pairs += len(columns[0].lengths) // self._encodings[0]

    def append_raw(self, source: Iterable[str], target: Iterable[str], direction: Direction | None = None) -> None:
        """Adds lines of raw text in one of the directions that `raw` has."""
        for file, lines in zip(self._raw[direction or next(iter(self._raw))], (source, target), strict=True):
            file.write("".join(f"{line}\n" for line in lines))

    @property
    def meta(self) -> SplitMeta:
        """The description of what was written so far."""
        (source, target, *_), (source_encodings, target_encodings) = self._totals, self._encodings
        return SplitMeta(self.pairs, source, target, source_encodings, target_encodings)


def write_models(folder: Path, codec: TextCodec) -> None:
    """Writes the subword models."""
    for name, model in zip(model_names(codec.config), (codec.source, codec.target), strict=True):
        with _new_file(folder / name) as file:
            file.write(model.to_bytes())


def complete(folder: Path, codec: TextCodec, splits: Mapping[str, SplitMeta], options: Mapping[str, Any]) -> None:
    """Writes the subword models and meta.json, which complete a data folder."""
    write_models(folder, codec)
    remove_partial_files(folder)
    paths = sorted(path for path in folder.iterdir() if path.name != META)
    files = {path.name: FileMeta(path.stat().st_size, digest_of(str(path))) for path in paths}
    meta = asdict(Meta(codec.config.to_dict(), dict(splits), files, options))
    # A byte that is not UTF-8, which the name of a file may have, becomes "?".
    content = json.loads(json.dumps(meta, ensure_ascii=False).encode(errors="replace"))
    with _new_file(folder / META) as file:
        file.write(json.dumps({"sha256": digest_of_json(content), **content}, indent=1, ensure_ascii=False).encode())
