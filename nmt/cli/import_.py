"""`nmt import` makes checkpoints of models of other toolkits."""

from typing import Annotated

import typer

import_ = typer.Typer(
    name="import", help="Make a checkpoint of a model that another toolkit has trained.", no_args_is_help=True
)

Output = Annotated[str, typer.Option(help="Checkpoint file to write.")]


@import_.command(no_args_is_help=True)
def huggingface(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a MarianMT model, such as one of Opus-MT.")],
    output: Output,
    source_lang: Annotated[str | None, typer.Option(help="Source language, if the folder does not say it.")] = None,
    target_lang: Annotated[str | None, typer.Option(help="Target language, if the folder does not say it.")] = None,
) -> None:
    """Make a checkpoint of a MarianMT model in the format of Hugging Face.

    Models in model.safetensors need the package safetensors: pip install safetensors.
    """
    from nmt import console
    from nmt.checkpoint import write_checkpoint
    from nmt.exchange.huggingface import import_huggingface
    from nmt.files import output_file

    checkpoint = import_huggingface(folder, source_lang, target_lang)
    with output_file(output) as file:
        write_checkpoint(checkpoint, file)
    console.info(f"wrote {output}")
