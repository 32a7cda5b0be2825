"""`nmt attention`: what a model attends to, drawn."""

from typing import Annotated, Literal

import typer

from nmt import console
from nmt.errors import NmtError
from nmt.files import output_file


def attention(
    checkpoint: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="Snapshot or average.")],
    source: Annotated[str, typer.Option(help="Raw text of the source sentence.")],
    output: Annotated[str, typer.Option(help="HTML page to write, or .svg for a picture of a single head.")],
    target: Annotated[str | None, typer.Option(help="Raw text of its translation; else the model's own.")] = None,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"],
        typer.Option(help="Self-attention of encoder or decoder, or attention over the source.", rich_help_panel="SVG"),
    ] = "cross",
    layer: Annotated[int, typer.Option(help="Layer, from 1.", rich_help_panel="SVG")] = 1,
    head: Annotated[int, typer.Option(help="Head, from 1.", rich_help_panel="SVG")] = 1,
) -> None:
    """Draw the attention weights of a sentence pair, for all layers and heads, on an interactive page.

    As in the paper's appendix. The page holds everything it needs.
    """
    if not output.endswith((".html", ".svg")):
        raise NmtError(f"--output {output} must end in .html, for a page, or in .svg, for one head")
    from nmt.pages.attention import attention_of, head_as_svg, page_data
    from nmt.pages.page import page

    found = attention_of(checkpoint, source, target)
    if output.endswith(".svg"):
        drawn = head_as_svg(found[kind], layer, head)
    else:
        drawn = page("attention", f"Attention of {checkpoint}", page_data(found))
    with output_file(output, [checkpoint]) as file:
        file.write(drawn)
    console.info(f"wrote {output}")
