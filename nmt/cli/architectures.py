"""`nmt architectures`: the registry as a table."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nmt.model.cost import parameters
from nmt.options import flag_name
from nmt.registry import ARCHITECTURES

_WIDTH = 100


def architectures(
    vocab_size: Annotated[
        int,
        typer.Option(min=8, max=1_000_000, help="Pieces in the shared vocabulary the parameters are counted with."),
    ] = 37000,
) -> None:
    """List the registered architectures."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "parameters"):
        table.add_column(column, no_wrap=True)
    table.add_column("variant", overflow="fold")
    for name, c in ARCHITECTURES.items():
        layers = (
            str(c.encoder_layers) if c.encoder_layers == c.decoder_layers else f"{c.encoder_layers}+{c.decoder_layers}"
        )
        sizes = (layers, c.d_model, c.d_ff, c.heads, c.d_k, c.d_v, c.dropout)
        variant = ", ".join(f"{flag_name(field)} {value}" for field, value in c.variants().items())
        table.add_row(name, *map(str, sizes), f"{parameters(c, vocab_size) / 1e6:.1f}M", variant)
    # Whole names and numbers, even where a narrow terminal has to wrap the lines.
    Console(width=max(Console().width, _WIDTH)).print(table)
