"""Adam (paper §5.3) and Muon, clipping of gradients, and the loss scale of fp16."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor, nn

from nmt.config import TrainConfig

# The momentum of Muon, and the coefficients of Newton and Schulz's iteration (Jordan et al. 2024).
_MOMENTUM = 0.95
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
# The steps of matrices of one shape are computed together, because calls take longer than products of small
# matrices. Batches of more than so many elements need more memory and are not faster (for GPUs, an estimate).
_ELEMENTS = {"cpu": 2**20, "cuda": 2**24}


class Muon:
    """Muon (Jordan et al. 2024): the step of a matrix is its momentum with all singular values brought close to 1.

    Projections that are stored in one weight are separate matrices. Steps are scaled to the usual size of Adam's
    (Liu et al. 2025, arXiv:2502.16982), so Adam's learning rates fit. Every rank computes all steps. They are the
    same as those of `torch.optim.Muon`, which computes one matrix after the other, and always in bfloat16.
    """

    def __init__(self, weights: Sequence[tuple[Tensor, Sequence[int]]], dtype: torch.dtype) -> None:
        """`weights` has each weight with the numbers of rows of its matrices; the iteration is computed in `dtype`."""
        self._weights, self._dtype = weights, dtype
        # The matrices share the memory of the weights.
        self._matrices = [matrix for weight, rows in weights for matrix in weight.detach().split(rows)]
        self.momenta = list(map(torch.zeros_like, self._matrices))
        by_shape: dict[torch.Size, list[list[int]]] = {}  # indices of matrices, in batches
        for index, matrix in enumerate(self._matrices):
            batches = by_shape.setdefault(matrix.shape, [[]])
            if len(batches[-1]) * matrix.numel() >= _ELEMENTS[matrix.device.type]:
                batches.append([])
            batches[-1].append(index)
        self._batches = list(chain(*by_shape.values()))
        sizes = (sorted(matrix.shape) for matrix in self._matrices)
        self.flops = sum(_ITERATIONS * (4.0 * m**2 * n + 2 * m**3) for m, n in sizes)  # of a step

    @torch.no_grad()
    def step(self, learning_rate: float, loss_scale: float) -> None:
        """Changes the weights by their gradients, which are divided by `loss_scale` first."""
        gradients = list[Tensor]()
        for weight, rows in self._weights:
            assert weight.grad is not None
            if loss_scale != 1:
                weight.grad /= loss_scale
            gradients += weight.grad.split(rows)
        for indices in self._batches:
            batch_gradients = [gradients[index] for index in indices]
            momenta = [self.momenta[index] for index in indices]
            torch._foreach_lerp_(momenta, batch_gradients, 1 - _MOMENTUM)
            steps = torch._foreach_lerp(batch_gradients, momenta, _MOMENTUM)  # Nesterov's
            steps_PRC = _orthogonal(torch.stack(steps).to(self._dtype))
            size = 0.2 * max(steps_PRC.shape[1:]) ** 0.5
            weights = [self._matrices[index] for index in indices]
            torch._foreach_add_(weights, list(steps_PRC.to(weights[0].dtype)), alpha=-learning_rate * size)


def _orthogonal(matrices_PRC: Tensor) -> Tensor:
    """Returns P matrices with the same singular vectors, and singular values that are close to 1."""
    if matrices_PRC.shape[1] > matrices_PRC.shape[2]:
        return _orthogonal(matrices_PRC.mT).mT
    x_PRC = matrices_PRC / matrices_PRC.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(_ITERATIONS):
        gram_PRR = x_PRC @ x_PRC.mT
        x_PRC = torch.baddbmm(x_PRC, torch.baddbmm(gram_PRR, gram_PRR, gram_PRR, beta=_B, alpha=_C), x_PRC, beta=_A)
    return x_PRC


# The first loss scale, the factors by which it grows and falls, and the updates in a row, none of them skipped,
# after which it grows.
_FIRST_SCALE, _GROWTH, _BACKOFF, _GROWTH_UPDATES = 2.0**16, 2.0, 0.5, 2000


class Optimizer:
    """Updates parameters by their gradients: `matrices` with Muon, and the others with Adam.

    In fp16, whose range is too small for many gradients, the loss is multiplied by a scale that adapts to the
    largest value that does not overflow (Micikevicius et al. 2018). All ranks have the same scale, because it
    depends on whether updates were skipped, which all ranks agree on. (`torch.amp.GradScaler` would look for
    overflows in another pass over all gradients, in fp16 only, and works with optimisers of torch alone.)

    Args:
        matrices: the weights that Muon changes, with the numbers of rows of the matrices in each.
        dtype: the type of Muon's matrix products. The weights and the moments keep their own type.
        scales_loss: whether gradients are multiplied by `loss_scale`.
        flat: whether all gradients are parts of one tensor, which ranks sum at once.

    Attributes:
        flat_gradient: this tensor; None if there is none.
        flops: the operations of Muon in an update. Those of Adam are too few to count.
        adam_bytes: the bytes of Adam's two moments, which the first update allocates.
        moment_bytes: the bytes of the moments of Adam and Muon, which a training state holds.
        loss_scale: the factor on the loss; None if it is not scaled.
        good_updates: the number of updates since the scale changed or an update was skipped.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        config: TrainConfig,
        matrices: Iterable[tuple[Tensor, Sequence[int]]] = (),
        dtype: torch.dtype = torch.float32,
        *,
        scales_loss: bool = False,
        flat: bool = False,
    ) -> None:
        self._parameters, self._clip_norm = list(parameters), config.clip_norm
        muon_weights = list(matrices)
        self._muon = Muon(muon_weights, dtype)
        muon_ids = {id(weight) for weight, _ in muon_weights}
        adam_weights = [weight for weight in self._parameters if id(weight) not in muon_ids]
        betas = config.adam_beta1, config.adam_beta2
        groups = [{"params": adam_weights}]  # which may be empty
        self._adam = torch.optim.Adam(groups, lr=0.0, betas=betas, eps=config.adam_epsilon, fused=True)
        self.flops = self._muon.flops
        self.adam_bytes = sum(2 * weight.nbytes for weight in adam_weights)
        self.moment_bytes = self.adam_bytes + sum(momentum.nbytes for momentum in self._muon.momenta)
        device = self._parameters[0].device
        self.loss_scale = torch.tensor(_FIRST_SCALE, device=device) if scales_loss else None
        self.good_updates = torch.zeros((), dtype=torch.int32, device=device)
        self.flat_gradient: Tensor | None = None
        if flat:
            # Each part begins at a multiple of 64 bytes, which processors prefer.
            sizes = [weight.numel() + -weight.numel() % 16 for weight in self._parameters]
            self.flat_gradient = torch.zeros(sum(sizes), device=device)
            for weight, part in zip(self._parameters, self.flat_gradient.split(sizes), strict=True):
                weight.grad = part[: weight.numel()].view_as(weight)

    def step(self, learning_rate: float) -> tuple[Tensor, Tensor]:
        """Performs an update, and clears the gradients. Scales them down to --clip-norm first, if it is given.

        Returns:
            The gradient's norm before clipping; and 1 if the update was skipped because the norm is not finite, else 0.
        """
        gradients = [weight.grad for weight in self._parameters if weight.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if self.loss_scale is not None:
            norm = norm / self.loss_scale
        if self._clip_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self._parameters, self._clip_norm, norm)
        skipped = (~norm.isfinite()).float()
        self._adam.param_groups[0]["lr"] = learning_rate
        self._adam.found_inf = skipped  # type: ignore[attr-defined] # 1 makes fused Adam skip the step
        self._adam.grad_scale = self.loss_scale  # type: ignore[attr-defined] # fused Adam divides by it
        self._adam.step()
        if self._muon.momenta and not skipped:  # waits for the device
            self._muon.step(learning_rate, 1.0 if self.loss_scale is None else self.loss_scale.item())
        self.clear_gradients()
        if self.loss_scale is not None:
            torch._amp_update_scale_(self.loss_scale, self.good_updates, skipped, _GROWTH, _BACKOFF, _GROWTH_UPDATES)
        return norm, skipped

    def clear_gradients(self) -> None:
        """Discards the gradients."""
        if self.flat_gradient is not None:
            self.flat_gradient.zero_()
        elif self._parameters[0].device.type == "cpu":  # the next update can use their memory for activations
            for weight in self._parameters:
                weight.grad = None
        elif gradients := [weight.grad for weight in self._parameters if weight.grad is not None]:
            torch._foreach_zero_(gradients)  # a recorded CUDA graph writes to the same memory

    def state_dict(self) -> dict[str, Tensor]:
        """Returns the states of Adam and Muon by the numbers of their parameters: `0.exp_avg`, `muon.0` and so on."""
        state = self._adam.state_dict()["state"]
        tensors = {f"{index}.{name}": value for index, moments in state.items() for name, value in moments.items()}
        return tensors | {f"muon.{index}": momentum for index, momentum in enumerate(self._muon.momenta)}

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Restores what `state_dict` returned."""
        state: dict[int, dict[str, Tensor]] = {i: {} for i in range(len(self._adam.param_groups[0]["params"]))}
        for key, tensor in tensors.items():
            index, name = key.split(".")
            if index == "muon":
                self._muon.momenta[int(name)].copy_(tensor)
            else:
                state[int(index)][name] = tensor.clone()
        self._adam.load_state_dict(self._adam.state_dict() | {"state": state})
