"""What a training prints at its end: the result, and the commands that come next."""

import shlex
from pathlib import Path

from nmt import console
from nmt.data.folder import raw_name
from nmt.training.display import scores_in_words
from nmt.training.metrics import perplexity
from nmt.training.run_folder import BEST, RunFolder, numbered
from nmt.training.selection import best_updates
from nmt.training.setup import Setup
from nmt.training.state import TrainState

# Checkpoints that the proposed command averages at most, as the paper's base models do.
_AVERAGED = 5


def show_summary(setup: Setup, state: TrainState, folder: RunFolder) -> None:
    """Prints the time of a finished training, its best checkpoint, and the next commands."""
    counters = state.counters
    console.info(
        f"finished {console.counted(counters.update, 'update')} after {console.clock(counters.seconds)} of training"
    )
    best = next(iter(best_updates(state.validations, setup.config.valid_metric[0], 1)), None)
    for scores in state.validations:
        if scores.update == best:
            found = scores_in_words(scores.nll, perplexity(scores.nll), scores.bleu, scores.chrf)
            console.info(f"{'best':>10}  {folder.path / BEST}, of update {best:,}: {found}")
    for i, command in enumerate(next_commands(setup, folder)):
        console.info(f"{'' if i else 'next':>10}  {command}")


def next_commands(setup: Setup, folder: RunFolder) -> list[str]:
    """Returns commands that average, translate, score and look at the run. The files that they read exist."""
    snapshots = len(numbered(folder.path, "snapshot"))
    checkpoint, commands = folder.path / BEST, []
    if snapshots > 1:
        checkpoint = folder.path / "average.safetensors"
        last = min(_AVERAGED, snapshots)
        commands.append(_joined("nmt average-checkpoints", folder.path, "--last", last, "--output", checkpoint))
    text = setup.data.codec.config
    split = "test" if "test" in setup.data.meta.splits else "valid"
    source, reference = (setup.data.path / raw_name(split, lang) for lang in (text.source_lang, text.target_lang))
    output = folder.path / f"{split}.out.{text.target_lang}"
    commands.append(_joined("nmt generate", checkpoint, "--input", source, "--output", output))
    if setup.config.translates:  # otherwise the outputs may be trees, for which BLEU is the wrong metric
        words = reference, "--hypothesis", output, "--target-lang", text.target_lang
        commands.append(_joined("nmt score --reference", *words))
    return [*commands, _joined("nmt report", folder.path)]


def _joined(command: str, *words: Path | str | int) -> str:
    """Returns a command line. A path that begins with a dash would be taken for an option."""
    texts = (f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word) for word in words)
    return " ".join([command, *map(shlex.quote, texts)])
