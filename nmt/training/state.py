"""A training: its data, options and machine, and what every update changes."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt import console, extensions
from nmt.checkpoint import WEIGHT_BYTES, new_model
from nmt.checkpoint_format import latest, read_provenance
from nmt.config import ModelConfig, TrainConfig
from nmt.data.folder import DataFolder
from nmt.errors import NmtError
from nmt.model.cpu_kernels import Linear
from nmt.model.device import is_native
from nmt.model.lora import LowRankLinear
from nmt.model.packing import compile_layers, obstacle_to_compiling, obstacle_to_kernel, obstacle_to_packing
from nmt.resources import return_freed_memory
from nmt.training.averaging import MovingAverage
from nmt.training.graphs import GraphedPass
from nmt.training.lora import FrozenBase
from nmt.training.loss import TrainingLoss
from nmt.training.optimizer import Optimizer
from nmt.training.ranks import Rank
from nmt.training.records import Scores, ranked, without_improvement


@dataclass
class Counters:
    """The progress of a training.

    Attributes:
        update, epoch, update_in_epoch: how many are complete.
        seconds, flops: the time and the operations of all updates.
        snapshot_seconds: the `seconds` when the last snapshot was saved.
        device_tokens: a lower number than --device-tokens, if memory ran out with more.
    """

    update: int = 0
    epoch: int = 0
    update_in_epoch: int = 0
    snapshot_seconds: float = 0.0
    seconds: float = 0.0
    flops: float = 0.0
    device_tokens: int | None = None


# The beginnings of the names of the weights in each group of --freeze.
FROZEN_WEIGHTS = {
    "embeddings": ("source_embedding.", "target_embedding.", "source_positions.", "target_positions.", "output_bias"),
    "encoder": ("encoder.", "encoder_norm."),
    "decoder": ("decoder.", "decoder_norm."),
}


# A model of more parameters than this computes for so long that new pages for its activations cost little time.
_LARGE = 2**28


class Training:
    """A training: model, loss, optimiser and progress. Without --init-from, its first weights depend on the seed alone.

    Attributes:
        data, model_config, world, runtime: what stays the same.
        config: the options. Only --hours changes them, while the training follows time.
        base: the checkpoint that has the frozen weights of --lora or --freeze embeddings, if one is given.
        stop: whether a signal has asked the training to stop.
        packs: whether batches are packed, without padding between sentences.
        hardware: a description of the device and the code that computes gradients.
        loss: the model and its loss.
        graphs: repeats forward and backward passes on a GPU; None where that does not work.
        average: the moving average of the weights (--ema).
        counters, validations: the progress, and the scores of all validations.
    """

    def __init__(self, data: DataFolder, model_config: ModelConfig, config: TrainConfig, rank: Rank) -> None:
        self.data, self.model_config, self.config = data, model_config, config
        self.world, self.runtime, self.stop = world, runtime, _ = rank
        self.counters, self.validations = Counters(), list[Scores]()
        obstacle = obstacle_to_packing(model_config, runtime)
        sizes = model_config.heads, model_config.d_k, runtime.device, model_config.attention_dropout
        if obstacle is None and (obstacle := obstacle_to_kernel(*sizes)) and not config.compile:
            console.warn(f"training is slower here than it could be: {obstacle}")
        # Otherwise they would cut an update in different ways. Obstacles may name temporary files.
        world.require_same({"packing": "does not work" if obstacle else "works"})
        self.packs = obstacle is None
        self.hardware = f"{runtime.name}, {runtime.precision}" + ", attention without padding" * self.packs
        torch.manual_seed(config.seed)
        self.base = None
        if config.init_from and (config.lora or "embeddings" in config.freeze):
            self.base = FrozenBase(config.init_from, model_config, data.codec, config.lora)
        model = self.base.model(runtime.dtype) if self.base else new_model(model_config, data.codec)
        if runtime.device.type == "cpu" and sum(weight.numel() for weight in model.parameters()) > _LARGE:
            return_freed_memory()
        for name, weight in model.named_parameters():
            learns_anyway = self.base and (name.endswith(".added") or name == "output_bias")
            if not learns_anyway and any(name.startswith(FROZEN_WEIGHTS[group]) for group in config.freeze):
                weight.requires_grad_(False)
        if not any(weight.requires_grad for weight in model.parameters()):
            raise NmtError("--freeze leaves no weights to train; leave out one of its values")
        criterion = extensions.entry(extensions.CRITERIA, config.criterion, "--criterion") if config.criterion else None
        loss = TrainingLoss(model, config.label_smoothing, config.alignment_weight, criterion)
        self.loss = loss.to(runtime.device).train()
        world.copy_to_all(self.loss.state_dict().values())  # different processors may draw different first weights
        if config.compile:
            if obstacle := obstacle or obstacle_to_compiling(runtime.device):
                console.warn(f"--compile has no effect here: {obstacle}")
            else:
                compile_layers(model)
                self.loss.nll_on_gpu = torch.compile(self.loss.nll_on_gpu)
                self.hardware += ", compiled layers"
        self.optimizer = Optimizer(
            (weight for weight in self.loss.parameters() if weight.requires_grad),
            config,
            matrices(model) if config.optimizer == "muon" else (),
            torch.bfloat16 if is_native(torch.bfloat16, runtime.device.type) else torch.float32,
            scales_loss=runtime.dtype == torch.float16,
            flat=world.size > 1,
        )
        # No graphs with a criterion of the user, which may wait for the GPU.
        graphed = self.packs and runtime.device.type == "cuda" and criterion is None
        self.graphs = GraphedPass(self.loss, runtime.device) if graphed else None
        self.average = MovingAverage(model, config.ema)

    @property
    def device_tokens(self) -> int:
        """The most tokens on either side of a micro-batch: by the options, or fewer if those do not fit.

        Padding counts, unless batches are packed.
        """
        limit = self.config.tokens_at_once(self.runtime.device.type, self.model_config.d_model)
        return min(limit, self.counters.device_tokens or limit)

    @cached_property
    def derived_from(self) -> str | None:
        """The name of the model that --init-from was made from: the first one that is known."""
        if self.config.init_from is None:
            return None
        base: Mapping[str, Any] = {}
        with suppress(NmtError):  # a training that resumes may do without the file
            base = latest(read_provenance(self.config.init_from))
        imported = base.get("imported", {})
        first = imported.get("folder") or imported.get("file") or self.config.init_from
        return base.get("derived_from") or Path(first).name

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.loss.parameters())

    @property
    def learned(self) -> int:
        """The number of parameters that learn."""
        return sum(p.numel() for p in self.loss.parameters() if p.requires_grad)

    @property
    def average_bytes(self) -> int:
        """The bytes of the moving average."""
        return 0 if self.config.ema is None else WEIGHT_BYTES * self.learned

    @property
    def snapshot_due(self) -> bool:
        """Whether a checkpoint is due after the last update."""
        counters, config = self.counters, self.config
        if config.save_updates is not None:
            return counters.update % config.save_updates == 0
        return counters.seconds - counters.snapshot_seconds >= 60 * config.save_minutes

    @property
    def validation_due(self) -> bool:
        """Whether a validation is due after the last update and has not been done."""
        update, config = self.counters.update, self.config
        planned = update % config.valid_updates == 0 or update == config.max_updates
        return planned and update > max((scores.update for scores in self.validations), default=0)

    @property
    def out_of_patience(self) -> bool:
        """Whether --patience ends the training."""
        patience, metrics, min_delta = self.config.patience, self.config.valid_metric, self.config.min_delta
        return patience is not None and without_improvement(self.validations, metrics, min_delta) >= patience

    @property
    def best_first(self) -> list[Scores]:
        """The scores of all validations, best first by the first metric of --valid-metric."""
        return ranked(self.validations, self.config.valid_metric[0])

    @property
    def is_over(self) -> bool:
        """Whether the training has reached --max-updates or the end of --patience."""
        return self.counters.update >= self.config.max_updates or self.out_of_patience


def matrices(model: nn.Module) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Yields the weights of all linear layers that are trained, with the numbers of rows of the matrices in each.

    With --lora, these are the factors of the updates.
    """
    for layer in model.modules():
        if isinstance(layer, LowRankLinear):
            yield layer.down, (layer.rank,) * len(layer.rows)
            yield layer.up, layer.rows
        elif isinstance(layer, Linear) and layer.weight.requires_grad:
            yield layer.weight, layer.rows
