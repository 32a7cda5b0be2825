"""What translates, as the options of a command say: models, device, languages, search, glossary, and memories."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from nmt.checkpoint_format import read_codec, read_text_config
from nmt.config import DirectionConfig, EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError
from nmt.files import digest_of
from nmt.jobs.run import settings_of, shown_digest
from nmt.memories.memory import Memory
from nmt.model.device import device_type, precision_of
from nmt.text.corpus import memory_files
from nmt.text.directions import Direction
from nmt.text.glossary import Glossary
from nmt.text.protected import Protected
from nmt.text.text_config import TextConfig
from nmt.translate.confidence import how_to_calibrate, read_calibrations, valid_for
from nmt.translate.job import OutputForm, TranslationJob
from nmt.translate.units import Cut, UnitMaker


@dataclass(frozen=True)
class Setup:
    """Which models translate, how, and with which glossary and memories.

    Attributes:
        models: the checkpoints; several form an ensemble.
        runtime: a device and a precision in place of `auto`; see `placed`.
        glossary, memory: the files of the user.
        memories: those in the files, which `with_memories` opens.
    """

    models: tuple[str, ...]
    search: SearchConfig
    runtime: RuntimeConfig
    engine: EngineConfig
    languages: DirectionConfig
    glossary: str | None = None
    memory: tuple[str, ...] = ()
    memories: tuple[Memory, ...] = ()

    @cached_property
    def text(self) -> TextConfig:
        """The text processing of the models."""
        return read_text_config(self.models[0])

    @property
    def direction(self) -> Direction:
        """The languages that the options name."""
        return Direction.of(self.languages.source_lang, self.languages.target_lang)

    @cached_property
    def protected(self) -> Protected:
        """Finds what stays as it is."""
        return Protected(self.engine.keep, self.engine.protect)

    @cached_property
    def _glossary(self) -> Glossary | None:
        return None if self.glossary is None else Glossary.read(self.glossary, read_codec(self.models[0]))

    def maker(self, cut: Cut, *, offers: bool) -> UnitMaker:
        """Returns what makes the units; see `UnitMaker`."""
        return UnitMaker(self.text, self.protected, self.direction, cut, self.memories, self._glossary, offers)

    def job(
        self, output: OutputForm, *, offers: bool, alignments: bool = False, confidence: bool = False
    ) -> TranslationJob:
        """Returns the job that translates the units.

        Args:
            alignments: whether markup needs them, also without --alignments.
            confidence: whether text needs it for --doubtful. Raises NmtError if the models are not calibrated.
        """
        search = replace(self.search, alignments=self.search.alignments or alignments)
        calibrations = {}
        if confidence or output != "text":
            calibrations = valid_for(self.engine, search, read_calibrations(self.models))
        if confidence and str(self.text.resolved(self.direction)) not in calibrations:
            raise NmtError(f"--doubtful needs the confidence of translations, but {how_to_calibrate(self.models)}")
        return TranslationJob(
            self.models, self.runtime, search, output, offers, calibrations, self.search.alignments, engine=self.engine
        )

    @property
    def files(self) -> list[str | Path]:
        """The files that are read besides the input."""
        files: list[str | Path] = [*self.models, *filter(None, [self.engine.vocabulary_map, self.glossary])]
        if not self.memory:
            return files
        languages = self.text.resolved(self.direction)
        return [*files, *chain.from_iterable(memory_files(path, languages, self.direction)[0] for path in self.memory)]

    @property
    def settings(self) -> dict[str, Any]:
        """What the output depends on besides models, input and its form, by flag."""
        paths = {"--vocabulary-map": self.engine.vocabulary_map, "--glossary": self.glossary}
        files = {flag: path for flag, path in paths.items() if path is not None}
        memories = {"--memory": [shown_digest(memory.digest) for memory in self.memories]} if self.memories else {}
        # The number of tokens of a batch changes the speed alone.
        options = settings_of(self.search, self.runtime, self.engine, self.languages, without=("batch_tokens",))
        return options | {flag: shown_digest(digest_of(path)) for flag, path in files.items()} | memories


def placed(runtime: RuntimeConfig, options: JobConfig, engine: str = "pytorch") -> RuntimeConfig:
    """Returns the runtime with a device and a precision in place of `auto`. With --cluster, it must be connected."""
    if options.cluster:
        from nmt.jobs.ray import has_gpus

        if runtime.device != "cpu" and has_gpus():
            bf16 = runtime.precision == "auto" and engine == "pytorch"
            return replace(runtime, device="cuda", precision="bf16" if bf16 else runtime.precision)
        if runtime.device == "cuda":
            raise NmtError("--device is cuda, but the cluster has no GPU; give --device cpu")
        runtime = replace(runtime, device="cpu")
    precision: Any = precision_of(runtime) if engine == "pytorch" else runtime.precision
    device: Any = device_type(runtime)
    return replace(runtime, device=device, precision=precision)
