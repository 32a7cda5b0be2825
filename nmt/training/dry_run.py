"""What a training would take, found out by a few updates that are thrown away."""

from contextlib import closing
from pathlib import Path

from nmt import console
from nmt.config import ModelConfig, TrainConfig
from nmt.data.store import DataFolder
from nmt.data.verification import Verification
from nmt.model.cost import training_flops
from nmt.training.checks import check_fit
from nmt.training.distributed import joined
from nmt.training.metrics import peak_memory_mib
from nmt.training.optimizer import ADAM_BYTES
from nmt.training.run_folder import STATES_KEPT, RunFolder
from nmt.training.trainer import Trainer
from nmt.training.trial import timed

_WARM_UP, _MEASURED = 3, 8  # updates
_WEIGHT_BYTES = 4


def dry_run(data_folder: str, model_config: ModelConfig, config: TrainConfig) -> None:
    """Tells the plan, time, memory, operations and disk space of `train` with the same options; makes no run folder.

    Raises:
        NmtError: as `train` does.
        Interrupted: a signal asked to stop.
    """
    with joined(config) as (world, runtime, stop):
        data = DataFolder.open(data_folder)
        verification = Verification(data) if world.is_main else None
        check_fit(data, model_config, config)
        trainer = Trainer(data, model_config, config, RunFolder(Path(config.save_dir)), runtime, world, stop)
        plan = trainer.prepare(verification)
        with closing(trainer.stream.updates(plan, trainer.counters)) as updates:
            timed(trainer, updates, _WARM_UP)
            seconds = timed(trainer, updates, _MEASURED)[1] / _MEASURED
        split = data.split("train")
        source, target = (side.lengths.total // len(plan) for side in (split.source, split.target))
        flops = training_flops(model_config, len(data.codec.target), source, target)
        total = seconds * config.max_updates
        snapshot, state = (trainer.parameters * n / 2**20 for n in (_WEIGHT_BYTES, _WEIGHT_BYTES + ADAM_BYTES))
        every = 60 * config.save_minutes / seconds if config.save_updates is None else config.save_updates
        kept = min(config.keep_checkpoints, int(config.max_updates / every) + 1)
        lines = {
            "an update": f"{source:,} source and {target:,} target tokens, {flops / 1e12:,.1f} TFLOP, {seconds:.3g} s",
            "in all": f"{config.max_updates / len(plan):,.1f} epochs, {config.max_updates * flops:.1e} FLOP, "
            f"{console.clock(total)} at {flops / seconds / 1e12:,.1f} TFLOP/s, without validation",
            "memory": f"{peak_memory_mib(runtime.device):,.0f} MiB a process",
            "disk": f"{kept} snapshots of {snapshot:,.0f} MiB and {STATES_KEPT} states of {state:,.0f} MiB, "
            f"{(kept * snapshot + STATES_KEPT * state + snapshot) / 1024:,.1f} GiB with the best",
        }
        for name, value in lines.items():
            console.info(f"{name:>10}  {value}")
        console.info("dry run: nothing was written to --save-dir")
