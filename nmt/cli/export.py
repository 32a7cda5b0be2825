"""`nmt export` writes a checkpoint for another toolkit."""

from typing import Annotated, Literal

import typer

from nmt import console
from nmt.config.serving import LONGEST_EXPORTED
from nmt.errors import NmtError

Format = Annotated[
    Literal["ctranslate2", "huggingface", "argos"],
    typer.Option(
        help=f"Format to write: ctranslate2, for sentences of up to {LONGEST_EXPORTED:,} pieces; huggingface, a "
        "MarianMT model for transformers; or argos, a package for Argos Translate and LibreTranslate."
    ),
]
Output = Annotated[
    str, typer.Option(help="Folder to write, which must not exist; for argos, a file whose name ends in .argosmodel.")
]
Quantization = Annotated[
    Literal["float32", "float16", "bfloat16", "int16", "int8"] | None,
    typer.Option(
        help="Data type of the stored weights, by default float32 for ctranslate2 and int8 for argos; only for these."
    ),
]
Scores = Annotated[
    str | None, typer.Option(metavar="FILE", help="Output of nmt score, for the model card; only for huggingface.")
]
SentenceModel = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Model of MiniSBD that splits text into sentences, to put into the package; only for argos.",
    ),
]


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint file to export.")],
    output: Output,
    format: Format = "ctranslate2",
    quantization: Quantization = None,
    scores: Scores = None,
    sentence_model: SentenceModel = None,
) -> None:
    """Write a checkpoint in the format of CTranslate2, for serving without PyTorch, Hugging Face or Argos Translate.

    --format ctranslate2 and argos need the package ctranslate2: pip install ctranslate2.
    """
    for flag, value, formats in (
        ("--quantization", quantization, ["ctranslate2", "argos"]),
        ("--scores", scores, ["huggingface"]),
        ("--sentence-model", sentence_model, ["argos"]),
    ):
        if value is not None and format not in formats:
            raise NmtError(f"{flag} is only for --format {' and '.join(formats)}; leave it out")
    from nmt.checkpoint import load_checkpoint

    loaded = load_checkpoint(checkpoint, verify=True)
    if format == "huggingface":
        from nmt.interop.huggingface import export_huggingface
        from nmt.text.corpus import read_lines

        export_huggingface(loaded, checkpoint, output, "\n".join(read_lines(scores)) if scores else None)
    elif format == "argos":
        from nmt.interop.argos import export_argos

        export_argos(loaded, checkpoint, output, quantization or "int8", sentence_model)
    else:
        from nmt.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(loaded, checkpoint, output, quantization or "float32")
    console.info(f"wrote {output}")
