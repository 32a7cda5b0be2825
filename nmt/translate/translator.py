"""Raw lines to translations, for programs in Python."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from nmt.config import EngineConfig, RuntimeConfig, SearchConfig
from nmt.errors import naming
from nmt.interop.hub import with_files
from nmt.jobs.stream import Chunk, compute
from nmt.text.directions import Direction
from nmt.text.protected import PROTECTED
from nmt.translate.confidence import Calibration, read_calibrations, valid_for
from nmt.translate.job import TranslationJob
from nmt.translate.pytorch_engine import PyTorchEngine
from nmt.translate.units import Translation, Unit, UnitMaker


class Translator:
    """Translates with one model, or with several that average their probabilities (an ensemble).

    Attributes:
        models: the models as PyTorch modules, for translation only; `build_model` returns one that can be trained.
        codec: the text processing: `encode_source` and `encode_target` turn lines into ids, without BOS and EOS.
        runtime: the device and the precision of the models.
        engine: what computes translations.
    """

    def __init__(self, engine: PyTorchEngine, calibrations: Sequence[Calibration] = ()) -> None:
        self.engine, self.codec, self._calibrations = engine, engine.codec, calibrations
        self.models, self.runtime = engine.models, engine.runtime

    @classmethod
    def load(cls, checkpoint: str | Path, *others: str | Path, runtime: RuntimeConfig | None = None) -> Self:
        """Loads the model of a checkpoint, or an ensemble of several.

        Args:
            checkpoint: a file that nmt wrote, such as average.safetensors of a run folder, or the name of a
                published model, such as Helsinki-NLP/opus-mt-en-de, which is downloaded once.
            others: further checkpoints, for an ensemble.
            runtime: the device and the precision; by default a GPU if there is one.

        Raises:
            DamagedError: a file is not a checkpoint, or is damaged.
            NmtError: a file cannot be read, two differ in vocabulary or text processing, or there is no such device.
        """
        paths = with_files([str(each) for each in (checkpoint, *others)])
        return cls(PyTorchEngine.load(*paths, runtime=runtime), read_calibrations(paths))

    def translate(
        self,
        lines: Sequence[str],
        search: SearchConfig | None = None,
        advance: Callable[[int], None] = lambda _: None,
        *,
        source_lang: str = "",
        target_lang: str = "",
    ) -> list[str]:
        """Returns the best translation of each raw line, in order. An empty line gives an empty line.

        Args:
            lines: raw text.
            search: the options of beam search or sampling; by default those of the paper.
            advance: called after each batch with the number of lines it held.
            source_lang, target_lang: the languages, for a model of several; "" if there is no choice.

        Raises:
            TypeError: `lines` is a single string, whose characters would be taken for lines.
            NmtError: the model does not have a language, or cannot search as `search` says.
        """
        translations = self.hypotheses(lines, search, advance, source_lang=source_lang, target_lang=target_lang)
        return [best.text for best, *_ in translations]

    def hypotheses(
        self,
        lines: Sequence[str | Unit],
        search: SearchConfig | None = None,
        advance: Callable[[int], None] = lambda _: None,
        *,
        source_lang: str = "",
        target_lang: str = "",
    ) -> list[list[Translation]]:
        """Returns the n best translations of each line, best first, or its samples.

        A blank line has one empty translation. A line of more than `search.max_source_length` pieces is translated
        in parts, with a warning. The best translations of the parts are joined.

        Args:
            lines: raw text, or units with prefixes and constraints.
            search: the options of beam search or sampling; `n_best` or `samples` is the number of translations.
            advance: called after each batch with the number of lines it held.
            source_lang, target_lang: those of lines and of units without a direction; "" if there is no choice.

        Raises:
            TypeError: `lines` is a single string, whose characters would be taken for lines.
            NmtError: the model does not have a language, or cannot search as `search` and the units say.
        """
        if isinstance(lines, str):
            raise TypeError("translate and hypotheses take a list of lines; put a single one in brackets")
        maker = UnitMaker(self.codec.config, PROTECTED, Direction(source_lang, target_lang))
        units = []
        for n, line in enumerate(lines, start=1):
            with naming(f"line {n}"):
                units.append(maker.complete(line if isinstance(line, Unit) else Unit(line)))
        runtime = RuntimeConfig(device="cuda" if self.engine.device == "cuda" else "cpu")
        search = search or SearchConfig()
        calibrations = valid_for(EngineConfig(), search, self._calibrations)
        job = TranslationJob((), runtime, search, output="jsonl", calibrations=calibrations)
        with self.engine.session():
            outcome = compute(job, self.engine, Chunk(1, units), advance)
        assert outcome.result
        return [line.translations for line in outcome.result.values]
