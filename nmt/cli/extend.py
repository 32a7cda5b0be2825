"""`nmt extend` adds languages and pieces to a model of several languages."""

from functools import partial
from typing import Annotated

from typer import Argument

from nmt.cli.flags import CHECKPOINT, flags
from nmt.cli.import_ import Output, write
from nmt.config import SelectionConfig


@flags(without=("language_tokens", "languages", "pieces_of"))
def extend(
    model: Annotated[str, Argument(metavar="MODEL", help="Checkpoint of a model of several languages."), CHECKPOINT],
    output: Output,
    selection: SelectionConfig,
) -> None:
    """Add languages and pieces to a model of several languages that was trained with this toolkit.

    The model then learns the language from new text: nmt preprocess --like and nmt train --init-from.
    """
    from nmt.interop.vocabulary_extension import extended_checkpoint

    inputs = [model, *selection.add_pieces, *selection.unchanged]
    write(partial(extended_checkpoint, model, selection), output, inputs)
