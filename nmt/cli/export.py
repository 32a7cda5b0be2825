"""`nmt export`: a checkpoint for another engine."""

from typing import Annotated, Literal

import typer

from nmt import console


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Snapshot or average to export.")],
    output: Annotated[str, typer.Option(help="Folder to write; must not exist.")],
    format: Annotated[Literal["ctranslate2"], typer.Option(help="What to make.")] = "ctranslate2",  # noqa: ARG001
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"], typer.Option(help="Type to store weights in.")
    ] = "float32",
) -> None:
    """Write a checkpoint in the format of another engine, for serving without PyTorch.

    Sentences may have up to 2,048 pieces.

    Needs the package ctranslate2: pip install ctranslate2.
    """
    from nmt.checkpoint import load_checkpoint
    from nmt.export import export_ctranslate2

    export_ctranslate2(load_checkpoint(checkpoint), checkpoint, output, quantization)
    console.info(f"wrote {output}")
