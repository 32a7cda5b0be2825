"""`nmt export` writes a checkpoint for another toolkit."""

from typing import Annotated, Literal

from typer import Argument, Option

from nmt import console
from nmt.config.translation import LONGEST_EXPORTED
from nmt.errors import NmtError


def export(
    checkpoint: Annotated[str, Argument(metavar="CHECKPOINT", help="Checkpoint file to export.")],
    output: Annotated[
        str, Option(help="Folder to write, which must not exist; for argos, a file whose name ends in .argosmodel.")
    ],
    format: Annotated[
        Literal["ctranslate2", "huggingface", "onnx", "web", "argos"],
        Option(
            help=f"Format to write: ctranslate2, for sentences of up to {LONGEST_EXPORTED:,} pieces; huggingface, for "
            "transformers: a MarianMT model, or an M2M100 model if the checkpoint was imported from one; onnx, for "
            "ONNX Runtime and transformers.js; web, a page that translates in the browser; or argos, a package for "
            "Argos Translate and LibreTranslate."
        ),
    ] = "ctranslate2",
    quantization: Annotated[
        Literal["float32", "float16", "bfloat16", "int16", "int8"] | None,
        Option(
            help="Data type of the stored weights, by default float32 for ctranslate2 and int8 for argos; only for "
            "these formats."
        ),
    ] = None,
    data: Annotated[
        str | None, Option(metavar="TEXT", help="What the model was trained on, for the model card.")
    ] = None,
    license: Annotated[
        str | None, Option(metavar="TEXT", help="Licence and attribution of the model, for the model card.")
    ] = None,
    scores: Annotated[
        str | None,
        Option(metavar="FILE", help="File with any text, such as the output of nmt score, for the model card."),
    ] = None,
    sentence_model: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="Model of MiniSBD that splits text into sentences, to put into the package; only for argos.",
        ),
    ] = None,
    source_lang: Annotated[
        str | None, Option(help="Language that a package translates from, of a model of several; only for argos.")
    ] = None,
    target_lang: Annotated[
        str | None, Option(help="Language that a package translates into, of a model of several; only for argos.")
    ] = None,
    vocabulary_map: Annotated[
        str | None, Option(metavar="FILE", help="File of nmt vocabulary-map, for use_vmap; only for ctranslate2.")
    ] = None,
) -> None:
    """Write a checkpoint in the format of another toolkit, with a model card, README.md.

    --format ctranslate2 and argos need the extra ctranslate2, onnx and web the extra onnx: in the clone of nmt,
    pip install '.\\[onnx]' -c constraints.txt.
    """
    for flag, value, formats in (
        ("--quantization", quantization, ("ctranslate2", "argos")),
        ("--vocabulary-map", vocabulary_map, ("ctranslate2",)),
        ("--sentence-model", sentence_model, ("argos",)),
        ("--source-lang", source_lang, ("argos",)),
        ("--target-lang", target_lang, ("argos",)),
    ):
        if value is not None and format not in formats:
            raise NmtError(f"{flag} is only for --format {' and '.join(formats)}; leave it out")
    from nmt.checkpoint import load_checkpoint
    from nmt.interop.model_card import Facts
    from nmt.text.codec import Direction
    from nmt.text.corpus import read_lines

    model = load_checkpoint(checkpoint, verify=True), checkpoint, output
    facts = Facts(data, license, "\n".join(read_lines(scores)) if scores else None)
    # Each format imports packages that the others do not need.
    if format == "ctranslate2":
        from nmt.interop.ctranslate2 import export_ctranslate2

        export_ctranslate2(*model, quantization or "float32", facts, vocabulary_map)
    elif format == "argos":
        from nmt.interop.argos import export_argos

        export_argos(*model, quantization or "int8", facts, Direction.of(source_lang, target_lang), sentence_model)
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
