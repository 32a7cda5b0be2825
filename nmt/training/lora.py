"""The checkpoint that a training begins with if parts of it do not change (--lora, --freeze embeddings).

Its weights stay in its file: the model holds frozen matrices in 16 bits, mapped from the file where it has that type.
What is saved of --lora are the weights that learn. Whole models are made of these and the file, part by part.

Shapes: see docs/architecture.md; V pieces, X rows of a weight.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from nmt import console
from nmt.checkpoint import Computed, meta_model
from nmt.checkpoint_format import read_digest, read_rows
from nmt.config import ModelConfig
from nmt.errors import NmtError
from nmt.model.cpu_kernels import Linear
from nmt.model.lora import FrozenTable, add_low_rank, update_of
from nmt.model.transformer import Transformer
from nmt.text.codec import TextCodec
from nmt.training.fine_tuning import checkpoint_to_start_from, kept_layers

# Tables of embeddings, and the sides of the text whose pieces they have.
_TABLES = {"target_embedding.weight": "target", "source_embedding.weight": "source"}
# Of a table, so many numbers are read at once.
_PART = 2**24


class FrozenBase:
    """A checkpoint, and the model that begins with it.

    Args:
        rank: of --lora; None if only embeddings are frozen.

    Attributes:
        reference: what names the checkpoint in files that are of no use without it.
        added_pieces: the provenance of the pieces that were added when the checkpoint was imported, if there are any.
        added: the rows of each table that the checkpoint does not have, or that were added to it when it was imported.
        names, names_in_model: the weights of a whole model that come from the checkpoint, and those that do not.
    """

    def __init__(self, path: str, config: ModelConfig, codec: TextCodec, rank: int | None) -> None:
        self.path, self.config, self.codec, self.rank = Path(path).absolute(), config, codec, rank
        self.reference = {"path": str(self.path), "sha256": read_digest(path), "lora": rank}
        checkpoint = checkpoint_to_start_from(path, config, codec)
        self._stored = checkpoint.weights
        self._origins = kept_layers(path, checkpoint.model_config, config, {name: name for name in self._stored})
        if ("source_embedding.weight" in self._origins) == codec.config.joint_vocab:
            raise NmtError(
                f"the data and {path} do not both have a joint vocabulary, as --lora and --freeze embeddings need; "
                f"give --like {path} to nmt preprocess"
            )
        self._rows: dict[str, Tensor] = {}  # of the file, for each row of a table; −1 if it has none
        self.added: dict[str, Tensor] = {}
        self.added_pieces = {name: of for name, of in checkpoint.provenance.items() if name == "added_pieces"}
        imported = set(self.added_pieces.get("added_pieces", ()))
        for table, side in (_TABLES | {"output_bias": "target"}).items():
            if table in self._origins:
                pieces, new = (getattr(text, side).vocabulary for text in (checkpoint.codec, codec))
                rows = {piece: row for row, piece in enumerate(pieces)}
                self._rows[table] = torch.tensor([rows.get(piece, -1) for piece in new])
                learns = [row for row, piece in enumerate(new) if piece in imported or piece not in rows]
                self.added[table] = torch.tensor(learns, dtype=torch.long)
        self._model = meta_model(config, codec)
        weights = dict(self._model.named_parameters())
        self.names = {name for name in weights if rank or name in _TABLES}
        self.names_in_model = weights.keys() - self.names
        self._layers = {f"{n}.weight": x.rows for n, x in self._model.named_modules() if isinstance(x, Linear)}
        self._shapes = {name: tuple(weight.shape) for name, weight in weights.items()}

    def check(self, sha256: str, path: Path) -> None:
        """Raises NmtError unless this is the checkpoint with the SHA-256 that the file at `path` names."""
        if self.reference["sha256"] != sha256:
            raise NmtError(
                f"{self.path} is not the checkpoint that {path} has learnt from: its SHA-256 begins with "
                f"{self.reference['sha256']:.12} instead of {sha256:.12}; put that checkpoint back"
            )

    def model(self, dtype: torch.dtype) -> Transformer:
        """Returns a model that begins with the checkpoint, whose products are computed in `dtype`.

        Frozen matrices have 16 bits, or the type of the checkpoint if that has 16 bits and `dtype` has not.
        """
        model, held = self._model, dict[str, Tensor]()
        for name, shape in self._shapes.items():
            kind = torch.float32
            if name in _TABLES:
                kind = dtype
            elif self.rank and len(shape) == 2:
                stored_dtype = self._stored[self._origins[name]].dtype
                kind = next((each for each in (dtype, stored_dtype) if each.itemsize == 2), torch.bfloat16)
            held[name] = self._held(name, kind)
        model.load_state_dict(held, assign=True)
        model.requires_grad_(not self.rank)
        for name in _TABLES.keys() & self._shapes.keys():
            rows_X, table_VD = self.added[name], held[name]
            if len(rows_X):
                console.info(f"{len(rows_X):,} of {len(table_VD):,} {_TABLES[name]} pieces learn their embeddings")
            values_XD = self._read(name, rows_X).float()
            random_X = self._rows[name][rows_X] < 0
            values_XD[random_X] = torch.randn(int(random_X.sum()), self.config.d_model) * self.config.d_model**-0.5
            setattr(model, name.removesuffix(".weight"), FrozenTable(table_VD, rows_X, values_XD))
        if self.config.output_bias:
            assert model.output_bias is not None
            learns_V = torch.zeros(len(model.output_bias)).index_fill_(0, self.added["output_bias"], 1)
            model.output_bias.requires_grad_(bool(learns_V.any()))
            if model.output_bias.requires_grad:
                model.register_buffer("learns_V", learns_V, persistent=False)  # moves to the device with the model
                model.output_bias.register_hook(lambda gradient: gradient * model.get_buffer("learns_V"))
        if self.rank:
            add_low_rank(model, self.rank)
        return model

    def _held(self, name: str, dtype: torch.dtype) -> Tensor:
        """Returns a weight in a type: mapped from the file if it is frozen and the file has it, otherwise a copy."""
        stored, rows_V = self._stored[self._origins[name]], self._rows.get(name)
        same_rows = rows_V is None or torch.equal(rows_V, torch.arange(len(stored)))
        if name in self.names and stored.dtype == dtype and same_rows:
            return stored
        copy = torch.empty(self._shapes[name], dtype=dtype)
        for rows_X in self._parts(name):
            copy[rows_X[0] : rows_X[-1] + 1] = self._read(name, rows_X)
        return copy

    def _parts(self, name: str) -> Sequence[Tensor]:
        """Returns the rows of a weight, of a table in several parts."""
        length, *others = self._shapes[name]
        return torch.arange(length).split(max(1, _PART // others[0]) if name in _TABLES else length)

    def _read(self, name: str, rows_X: Tensor) -> Tensor:
        """Returns a copy of some rows of a weight; they are 0 where the checkpoint has none."""
        origins_X = self._rows[name][rows_X] if name in self._rows else rows_X
        weight = read_rows(self.path, self._origins[name], origins_X.clamp(min=0))
        weight[origins_X < 0] = 0
        return weight

    def whole_weights(self, learned: Sequence[Mapping[str, Tensor]]) -> dict[str, Computed]:
        """Returns the weights `names` of a whole model, each in the type that the checkpoint has.

        Args:
            learned: the weights that have learned, by name; of several models, for the mean of these.
        """
        return {
            name: Computed(
                self._stored[self._origins[name]].dtype,
                self._shapes[name],
                self._parts(name),
                partial(self._merged, name, learned),
            )
            for name in self.names
        }

    def _merged(self, name: str, learned: Sequence[Mapping[str, Tensor]], rows_X: Tensor) -> Tensor:
        """Returns some rows of a weight with what was learned, which is computed in fp32."""
        weight, layer = self._read(name, rows_X), name.removesuffix(".weight")

        def mean(values: Iterable[Tensor]) -> Tensor:
            return torch.stack([value.cpu().float() for value in values]).mean(0)

        if name in learned[0]:  # the output bias
            return mean(weights[name] for weights in learned).to(weight.dtype)
        if f"{layer}.up" in learned[0]:
            factors = ([weights[f"{layer}.{factor}"].float() for factor in ("down", "up")] for weights in learned)
            update = mean(update_of(down, up, self._layers[name]) for down, up in factors)
            return (weight.float() + update).to(weight.dtype)
        if f"{layer}.added" in learned[0]:
            first, last = torch.searchsorted(self.added[name], torch.stack([rows_X[0], rows_X[-1] + 1])).tolist()
            values_XD = mean(weights[f"{layer}.added"][first:last] for weights in learned)
            weight[self.added[name][first:last] - rows_X[0]] = values_XD.to(weight.dtype)
        return weight
