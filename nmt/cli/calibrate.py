"""`nmt calibrate` fits the confidence of translations."""

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from nmt import console
from nmt.cli.flags import Checkpoints, flags
from nmt.config import DirectionConfig, EngineConfig, JobConfig, RuntimeConfig, SearchConfig
from nmt.errors import NmtError, naming


@flags(without=("alignments", "glossary_mode", "glossary_fallback"))
def calibrate(
    checkpoints: Checkpoints,
    source: Annotated[str, Option(help="Raw source text, which the model was not trained on.")],
    target: Annotated[str, Option(help="Its reference translations, line by line.")],
    languages: DirectionConfig,
    search: SearchConfig,
    runtime: RuntimeConfig,
    engine: EngineConfig,
) -> None:
    """Fit the confidence of a model's translations, and store it in the checkpoint, of an ensemble in the first one.

    nmt generate --output-format jsonl then gives each translation an estimate of its chrF, for this direction, this
    engine and these options of search. Call the command again for others. nmt train does so for the usual options.
    """
    from nmt.jobs.stream import Chunk, compute
    from nmt.text.corpus import read_rows
    from nmt.translate.calibration import calibrate as fit_and_store
    from nmt.translate.confidence import validity
    from nmt.translate.setup import Setup, placed
    from nmt.translate.units import Unit

    if not os.access(Path(checkpoints[0]).absolute().parent, os.W_OK):
        problem = f"the calibration is stored in {checkpoints[0]}, whose folder cannot be written"
        raise NmtError(f"{problem}; copy the checkpoint to another folder")
    runtime = placed(runtime, JobConfig(), engine.engine)
    setup = Setup(tuple(checkpoints), search, runtime, engine, languages)
    maker, job = setup.maker("unit", offers=False), setup.job("jsonl", offers=False)
    rows = list(read_rows(source, target))
    units = [maker.complete(Unit(text, place=f"{source}, line {n}")) for n, (text, _) in enumerate(rows, start=1)]
    loaded = job.load(job.models, 0)
    with console.Progress("calibrate", len(units), "line") as progress, loaded.session():
        result = compute(job, loaded, Chunk(1, units), progress.advance).result
    assert result
    best = [record.translations[0] for record in result.values]
    lines = zip(units, best, (reference for _, reference in rows), strict=True)
    with naming(f"{source} and {target}"):
        (calibration,) = fit_and_store(checkpoints, validity(engine, search), lines)
    console.info(f"{checkpoints[0]}: {calibration}")
