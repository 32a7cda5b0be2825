"""`nmt export` writes a checkpoint for another toolkit."""

from typing import Annotated, Literal

import typer

from nmt import console
from nmt.config.serving import LONGEST_EXPORTED
from nmt.errors import NmtError

Format = Annotated[
    Literal["ctranslate2", "huggingface", "onnx", "web", "argos"],
    typer.Option(
        help=f"Format to write: ctranslate2, for sentences of up to {LONGEST_EXPORTED:,} pieces; huggingface, a "
        "MarianMT model for transformers; onnx, for ONNX Runtime and transformers.js; web, a page that translates in "
        "the browser; or argos, a package for Argos Translate and LibreTranslate."
    ),
]
Output = Annotated[
    str, typer.Option(help="Folder to write, which must not exist; for argos, a file whose name ends in .argosmodel.")
]
Quantization = Annotated[
    Literal["float32", "float16", "bfloat16", "int16", "int8"] | None,
    typer.Option(
        help="Data type of the stored weights, by default float32 for ctranslate2 and int8 for argos; only for "
        "these formats."
    ),
]
Scores = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="File with any text, such as the output of nmt score and nmt benchmark, for the model card.",
    ),
]
Data = Annotated[str | None, typer.Option(metavar="TEXT", help="What the model was trained on, for the model card.")]
License = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Licence and attribution of the model, for the model card.")
]
SentenceModel = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Model of MiniSBD that splits text into sentences, to put into the package; only for argos.",
    ),
]
VocabularyMap = Annotated[
    str | None, typer.Option(metavar="FILE", help="File of nmt vocabulary-map, for use_vmap; only for ctranslate2.")
]


def export(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Checkpoint file to export.")],
    output: Output,
    format: Format = "ctranslate2",
    quantization: Quantization = None,
    data: Data = None,
    license: License = None,
    scores: Scores = None,
    sentence_model: SentenceModel = None,
    vocabulary_map: VocabularyMap = None,
) -> None:
    """Write a checkpoint in the format of another toolkit, with a model card, README.md.

    --format ctranslate2 and argos need the package ctranslate2; onnx and web need 'attention-nmt\\[onnx]'.
    """
    _check("--quantization", quantization, format, "ctranslate2", "argos")
    _check("--vocabulary-map", vocabulary_map, format, "ctranslate2")
    _check("--sentence-model", sentence_model, format, "argos")
    from nmt.checkpoint import load_checkpoint
    from nmt.interop.model_card import Facts
    from nmt.text.corpus import read_lines

    loaded = load_checkpoint(checkpoint, verify=True)
    model = loaded, checkpoint, output
    facts = Facts(data, license, "\n".join(read_lines(scores)) if scores else None)
    if format == "ctranslate2":
        from nmt.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(*model, quantization or "float32", facts, vocabulary_map)
    elif format == "argos":
        from nmt.interop.argos import export_argos

        export_argos(*model, quantization or "int8", facts, sentence_model)
    elif format == "huggingface":
        from nmt.interop.huggingface import export_huggingface

        export_huggingface(*model, facts)
    elif format == "onnx":
        from nmt.interop.onnx import export_onnx

        export_onnx(*model, facts)
    else:
        from nmt.pages.web_export import export_web

        export_web(*model, facts)
    console.info(f"wrote {output}")


def _check(flag: str, value: str | None, format: str, *formats: str) -> None:
    if value is not None and format not in formats:
        raise NmtError(f"{flag} is only for --format {' and '.join(formats)}; leave it out")
