"""`nmt attention` draws what a model attends to."""

from typing import Annotated

from typer import Option

from nmt import console
from nmt.cli.flags import Checkpoint, flags
from nmt.files import output_file


@flags()
def attention(
    checkpoint: Checkpoint,
    source: Annotated[str, Option(help="Raw text of the source sentence.")],
    output: Annotated[str, Option(help="HTML page to write.")],
    target: Annotated[str | None, Option(help="Raw text of the translation; by default the model translates.")] = None,
    source_lang: Annotated[str, Option(help="Language of the source, for a model of several.")] = "",
    target_lang: Annotated[str, Option(help="Language of the translation, for a model of several.")] = "",
) -> None:
    """Draw the attention weights of a sentence pair, for all layers and heads, on an interactive page.

    The drawings follow the paper's appendix. The page is self-contained.
    """
    from nmt.pages.attention import attention_of, page_data
    from nmt.pages.page import page
    from nmt.text.directions import Direction

    attentions = attention_of(checkpoint, source, target, Direction.of(source_lang, target_lang))
    with output_file(output, [checkpoint], suffix=".html") as file:
        file.write(page("attention", f"Attention of {checkpoint}", page_data(attentions)))
    console.info(f"wrote {output}")
