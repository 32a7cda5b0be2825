"""`nmt attention` draws what a model attends to."""

from typing import Annotated, Literal

from typer import Argument, Option

from nmt import console
from nmt.errors import NmtError
from nmt.files import output_file

_SHOWN = "Head in the picture, or first on the page"


def attention(
    checkpoint: Annotated[str, Argument(metavar="CHECKPOINT", help="Checkpoint file.")],
    source: Annotated[str, Option(help="Raw text of the source sentence.")],
    output: Annotated[str, Option(help="HTML page to write, or an .svg picture of a single head.")],
    target: Annotated[str | None, Option(help="Raw text of the translation; by default the model translates.")] = None,
    kind: Annotated[
        Literal["encoder", "decoder", "cross"],
        Option(help="Self-attention of the encoder or decoder, or cross-attention.", rich_help_panel=_SHOWN),
    ] = "cross",
    layer: Annotated[
        int | None, Option(help="Number of the layer, from 1; by default the last.", rich_help_panel=_SHOWN)
    ] = None,
    head: Annotated[int, Option(help="Number of the head, from 1.", rich_help_panel=_SHOWN)] = 1,
    source_lang: Annotated[str, Option(help="Language of the source, for a model of several.")] = "",
    target_lang: Annotated[str, Option(help="Language of the translation, for a model of several.")] = "",
) -> None:
    """Draw the attention weights of a sentence pair, for all layers and heads, on an interactive page.

    The drawings follow the paper's appendix. The page is self-contained.
    """
    if not output.endswith((".html", ".svg")):
        raise NmtError(f"--output {output} must end in .html for a page or in .svg for one head")
    from nmt.pages.attention import attention_of, head_as_svg, page_data
    from nmt.pages.page import page
    from nmt.text.codec import Direction

    direction = Direction(source_lang or "", target_lang or "")
    attentions = attention_of(checkpoint, source, target, direction)
    if output.endswith(".svg"):
        content = head_as_svg(attentions[kind], kind, layer, head)
    else:
        content = page("attention", f"Attention of {checkpoint}", page_data(attentions, kind, layer, head))
    with output_file(output, [checkpoint]) as file:
        file.write(content)
    console.info(f"wrote {output}")
