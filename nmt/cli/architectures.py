"""`nmt architectures` prints a table of the registered architectures."""

from typing import Annotated

from rich.console import Console
from rich.table import Table
from typer import Option

from nmt.config.options import flag_name


def architectures(
    vocab_size: Annotated[
        int, Option(min=8, max=1_000_000, help="Size of the shared vocabulary for which the parameters are counted.")
    ] = 37000,
) -> None:
    """List the architectures and their sizes."""
    from nmt.model.architectures import ARCHITECTURES, parameters

    table = Table(
        box=None,
        pad_edge=False,
        caption=f"Parameters are counted with a shared vocabulary of {vocab_size:,} pieces (--vocab-size).",
        caption_justify="left",
    )
    for column in ("name", "N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "parameters"):
        table.add_column(column, no_wrap=True)
    table.add_column("variant", overflow="fold")
    for name, config in ARCHITECTURES.items():
        encoder, decoder = config.encoder_layers, config.decoder_layers
        layers = str(encoder) if encoder == decoder else f"{encoder}+{decoder}"
        sizes = (config.d_model, config.d_ff, config.heads, config.d_k, config.d_v, config.dropout)
        flags = ((flag_name(field), value) for field, value in config.variants().items())
        variant = ", ".join(flag if value is True else f"{flag} {value}" for flag, value in flags)
        table.add_row(name, layers, *map(str, sizes), f"{parameters(config, vocab_size) / 1e6:.1f}M", variant)
    # rich would shorten names and numbers to fit a narrow terminal; the terminal wraps long lines instead.
    Console(width=max(Console().width, 100)).print(table)
