"""`nmt export` writes checkpoints for other toolkits."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer
from typer import Option

from nmt.cli.flags import Checkpoint, flags
from nmt.config import DirectionConfig, Facts

export = typer.Typer(
    name="export",
    help="Write a checkpoint in the format of another toolkit, with a model card, README.md.",
    no_args_is_help=True,
)

Folder = Annotated[str, Option(help="Folder to write, which must not exist.")]
Quantization = Annotated[
    Literal["float32", "float16", "bfloat16", "int16", "int8"], Option(help="Data type of the stored weights.")
]


@export.command(no_args_is_help=True)
@flags()
def ctranslate2(
    checkpoint: Checkpoint,
    output: Folder,
    facts: Facts,
    quantization: Quantization = "float32",
    vocabulary_map: Annotated[
        str | None, Option(metavar="FILE", help="File of nmt vocabulary-map, for use_vmap of CTranslate2.")
    ] = None,
) -> None:
    """Write a folder for CTranslate2 and programs that use it.

    This command needs the extra ctranslate2: pip install '.\\[ctranslate2]' -c constraints.txt in the clone of nmt.
    """
    from nmt.interop.ctranslate2 import export_ctranslate2

    write(export_ctranslate2, checkpoint, output, facts, quantization=quantization, vocabulary_map=vocabulary_map)


@export.command(no_args_is_help=True)
@flags()
def huggingface(
    checkpoint: Checkpoint,
    output: Folder,
    facts: Facts,
    push: Annotated[
        str | None,
        Option(metavar="NAMESPACE/NAME", help="Upload the folder to Hugging Face's hub as a public model, too."),
    ] = None,
) -> None:
    """Write a folder for transformers.

    It holds a MarianMT model, or an M2M100 model if the checkpoint was imported from one.
    """
    from nmt.interop.huggingface import export_huggingface

    if push is not None:
        from nmt.interop.hub import check_push, upload

        check_push(push)
    write(export_huggingface, checkpoint, output, facts)
    if push is not None:
        upload(output, push)


@export.command(no_args_is_help=True)
@flags()
def onnx(checkpoint: Checkpoint, output: Folder, facts: Facts) -> None:
    """Write a folder for ONNX Runtime and transformers.js.

    This command needs the extra onnx: pip install '.\\[onnx]' -c constraints.txt in the clone of nmt.
    """
    from nmt.interop.onnx import export_onnx

    write(export_onnx, checkpoint, output, facts)


@export.command(no_args_is_help=True)
@flags()
def web(checkpoint: Checkpoint, output: Folder, facts: Facts) -> None:
    """Write a folder with a page that translates in the browser.

    This command needs the extra onnx: pip install '.\\[onnx]' -c constraints.txt in the clone of nmt.
    """
    from nmt.pages.web_export import export_web

    write(export_web, checkpoint, output, facts)


@export.command(no_args_is_help=True)
@flags()
def argos(
    checkpoint: Checkpoint,
    output: Annotated[str, Option(help="File to write, whose name ends in .argosmodel.")],
    facts: Facts,
    languages: DirectionConfig,
    quantization: Quantization = "int8",
    sentence_model: Annotated[
        str | None,
        Option(metavar="FILE", help="Model of MiniSBD that splits text into sentences, to put into the package."),
    ] = None,
) -> None:
    """Write a package for Argos Translate and LibreTranslate.

    This command needs the extra ctranslate2: pip install '.\\[ctranslate2]' -c constraints.txt in the clone of nmt.
    """
    from nmt.interop.argos import export_argos
    from nmt.text.directions import Direction

    direction = Direction.of(languages.source_lang, languages.target_lang)
    options = {"quantization": quantization, "direction": direction, "sentence_model": sentence_model}
    write(export_argos, checkpoint, output, facts, **options)


@export.command(no_args_is_help=True)
@flags()
def marian(
    checkpoint: Checkpoint,
    output: Folder,
    facts: Facts,
    quantization: Annotated[
        Literal["float32", "int8"], Option(help="Data type of the stored matrices. Engines in browsers need int8.")
    ] = "int8",
) -> None:
    """Write a folder for Marian and Bergamot, the engine of Firefox: for students such as transformer_tiny_ssru.

    This command needs the extra huggingface: pip install '.\\[huggingface]' -c constraints.txt in the clone of nmt.
    """
    from nmt.interop.marian_export import export_marian

    write(export_marian, checkpoint, output, facts, quantization=quantization)


def write(exporter: Callable[..., None], checkpoint: str, output: str, facts: Facts, **options: Any) -> None:
    """Writes a checkpoint with a function of an exporter."""
    from nmt import console
    from nmt.checkpoint import load_checkpoint
    from nmt.text.corpus import read_lines

    model = load_checkpoint(checkpoint, verify=True)
    if facts.scores:
        facts = replace(facts, scores="\n".join(read_lines(facts.scores)) or None)
    exporter(model, checkpoint, output, facts=facts, **options)
    console.info(f"wrote {output}")
