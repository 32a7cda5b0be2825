"""`nmt architectures`: the registry as a table."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nmt.registry import ARCHITECTURES


def architectures(
    vocab_size: Annotated[
        int, typer.Option(help="Pieces in the shared vocabulary the parameters are counted with.")
    ] = 37000,
) -> None:
    """List the registered architectures."""
    table = Table("name", "N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "parameters", box=None)
    for name, c in ARCHITECTURES.items():
        layers = (
            str(c.encoder_layers) if c.encoder_layers == c.decoder_layers else f"{c.encoder_layers}+{c.decoder_layers}"
        )
        sizes = (layers, c.d_model, c.d_ff, c.heads, c.d_k, c.d_v, c.dropout)
        table.add_row(name, *map(str, sizes), f"{c.parameters(vocab_size) / 1e6:.1f}M")
    Console().print(table)
