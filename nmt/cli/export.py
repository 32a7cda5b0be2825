"""`nmt export` writes a checkpoint for another toolkit."""

from typing import Annotated, Literal

import typer

from nmt import console
from nmt.config.serving import LONGEST_EXPORTED
from nmt.errors import NmtError

_MapOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="File of nmt vocabulary-map, for use_vmap; only for ctranslate2.")
]


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
    vocabulary_map: _MapOption = None,
) -> None:
    """Write a checkpoint in the format of CTranslate2, for serving without PyTorch, or of Hugging Face.

    --format ctranslate2 needs the package ctranslate2: pip install ctranslate2.
    """
    _check(format, "ctranslate2", {"--quantization": quantization != "float32", "--vocabulary-map": vocabulary_map})
    _check(format, "huggingface", {"--scores": scores})
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


def _check(format: str, needed: str, given: dict[str, object]) -> None:
    """Raises NmtError if a flag that only the format `needed` has is given with another one."""
    for flag, value in given.items():
        if value and format != needed:
            raise NmtError(f"{flag} is only for --format {needed}; leave it out")
