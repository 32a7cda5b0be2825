"""`nmt export` writes a checkpoint for another toolkit."""

from typing import Annotated, Literal

import typer

from nmt import console
from nmt.config.serving import LONGEST_EXPORTED
from nmt.errors import NmtError


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint file to export.")],
    output: Annotated[str, typer.Option(help="Folder to write; must not exist.")],
    format: Annotated[
        Literal["ctranslate2", "huggingface"],
        typer.Option(
            help=f"Format to write: ctranslate2, for sentences of up to {LONGEST_EXPORTED:,} pieces, or huggingface, a "
            "MarianMT model for transformers."
        ),
    ] = "ctranslate2",
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"],
        typer.Option(help="Data type of the stored weights; only for ctranslate2."),
    ] = "float32",
    scores: Annotated[
        str | None, typer.Option(metavar="FILE", help="Output of nmt score, for the model card; only for huggingface.")
    ] = None,
    vocabulary_map: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of nmt vocabulary-map, for use_vmap; only for ctranslate2.")
    ] = None,
) -> None:
    """Write a checkpoint in the format of CTranslate2, for serving without PyTorch, or of Hugging Face.

    --format ctranslate2 needs the package ctranslate2: pip install ctranslate2.
    """
    if format == "huggingface" and quantization != "float32":
        raise NmtError("--quantization is only for --format ctranslate2; leave it out")
    if format == "huggingface" and vocabulary_map is not None:
        raise NmtError("--vocabulary-map is only for --format ctranslate2; leave it out")
    if format == "ctranslate2" and scores is not None:
        raise NmtError("--scores is only for --format huggingface; leave it out")
    from nmt.checkpoint import load_checkpoint

    loaded = load_checkpoint(checkpoint, verify=True)
    if format == "huggingface":
        from nmt.interop.huggingface import export_huggingface
        from nmt.text.corpus import read_lines

        export_huggingface(loaded, checkpoint, output, "\n".join(read_lines(scores)) if scores else None)
    else:
        from nmt.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(loaded, checkpoint, output, quantization, vocabulary_map)
    console.info(f"wrote {output}")
