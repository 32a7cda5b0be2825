"""`nmt calibrate` fits the confidence of translations."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Option

from nmt import console
from nmt.cli.flags import Checkpoint, flags
from nmt.config import DirectionConfig, EngineConfig, JobConfig, RuntimeConfig, ScoreConfig, SearchConfig
from nmt.errors import NmtError

# A fit to fewer translations would be worth little.
_LEAST_LINES = 100


@flags(without=("n_best", "alignments"))
def calibrate(
    checkpoint: Checkpoint,
    source: Annotated[str, Option(help="Raw source text, which the model was not trained on.")],
    target: Annotated[str, Option(help="Its reference translations, line by line.")],
    languages: DirectionConfig,
    search: SearchConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Fit the confidence of a model's translations, and store it in the checkpoint.

    nmt generate --output-format jsonl then gives each translation an estimate of its chrF, for this direction, this
    engine and these options of search. Call the command again for others.
    """
    import numpy as np

    from nmt.checkpoint import load_checkpoint, save_checkpoint
    from nmt.jobs.stream import Chunk, compute
    from nmt.scoring import sentence_scores
    from nmt.text.corpus import read_rows
    from nmt.translate.confidence import PROVENANCE_KEY, features, fitted, validity
    from nmt.translate.setup import Setup, placed
    from nmt.translate.units import Unit

    runtime = placed(runtime, JobConfig(), engine.engine)
    setup = Setup((checkpoint,), search, runtime, engine, languages)
    maker, job = setup.maker("unit", offers=False), setup.job("jsonl", offers=False)
    rows = list(read_rows(source, target))
    units = [maker.complete(Unit(text, place=f"{source}, line {n}")) for n, (text, _) in enumerate(rows, start=1)]
    loaded = job.load(job.models, 0)
    with console.Progress("calibrate", len(units), "line") as progress, loaded.session():
        result = compute(job, loaded, Chunk(1, units), progress.advance).result
    assert result
    translated = [
        (unit.source, record.translations[0], reference)
        for unit, record, (_, reference) in zip(units, result.values, rows, strict=True)
        if record.translations[0].log_probs and reference.strip()
    ]
    if len(translated) < _LEAST_LINES:
        raise NmtError(
            f"{source} and {target} have {console.counted(len(translated), 'pair')} that the model translates, but a "
            f"calibration needs {_LEAST_LINES}; give more text"
        )
    texts, references = [best.text for _, best, _ in translated], [reference for *_, reference in translated]
    scores = sentence_scores(texts, [references], "chrf", ScoreConfig())
    direction, valid = str(units[0].direction), validity(engine, search)
    features_NF = np.array([features(text, best) for text, best, _ in translated])
    calibration = fitted(direction, valid, features_NF, np.array([score.score / 100 for score in scores]))
    stored = load_checkpoint(checkpoint)
    earlier = stored.provenance.get(PROVENANCE_KEY, ())
    others = [each for each in earlier if (each["direction"], (each["engine"], each["search"])) != (direction, valid)]
    provenance = stored.provenance | {PROVENANCE_KEY: [*others, calibration._asdict()]}
    save_checkpoint(replace(stored, provenance=provenance), Path(checkpoint))
    console.info(
        f"{checkpoint}: confidence of {direction} with {calibration.engine}, fitted to "
        f"{console.counted(calibration.lines, 'line')}; on held-out lines, its mean error by tenths is "
        f"{calibration.error:.3f}, and its rank correlation with chrF {calibration.correlation:.3f}"
    )
