"""`nmt export` writes a checkpoint for another inference engine."""

from typing import Annotated, Literal

import typer

from nmt import console


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint file to export.")],
    output: Annotated[str, typer.Option(help="Folder to write; must not exist.")],
    format: Annotated[Literal["ctranslate2"], typer.Option(help="Format to write.")] = "ctranslate2",  # noqa: ARG001
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"],
        typer.Option(help="Data type of the stored weights."),
    ] = "float32",
) -> None:
    """Write a checkpoint in the format of another inference engine, for serving without PyTorch.

    The exported model takes sentences of up to 2,048 pieces.

    This command needs the package ctranslate2: pip install ctranslate2.
    """
    from nmt.checkpoint import load_checkpoint
    from nmt.export import export_ctranslate2

    export_ctranslate2(load_checkpoint(checkpoint), checkpoint, output, quantization)
    console.info(f"wrote {output}")
