"""Training on packed batches, which needs a GPU: whether a model can here, and layers that torch compiles for them.

The kernel of their attention is in `nmt.model.packed_attention`.

Shapes: see docs/architecture.md; F flat query positions, G flat key positions, B sentences, H heads, K d_k.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt.config import ModelConfig
from nmt.model.device import Runtime
from nmt.model.masks import PackedMask, sentence_starts
from nmt.model.transformer import Transformer

_TOLERANCE = 0.03  # of a tensor's norm; bf16 rounding stays well below


def obstacle_to_packing(config: ModelConfig, runtime: Runtime) -> str | None:
    """Describes which option or which part of the machine rules out packed batches; returns None if nothing does.

    The description says what "it", --compile, lacks, because only that option tells users of the obstacle.
    """
    if runtime.device.type != "cuda" or runtime.dtype != torch.bfloat16:
        return "it needs a GPU and bf16"
    if config.attention == "additive" or config.attention_window is not None:
        return "it needs dot-product attention without a window"
    if config.guided_alignment is not None:
        return "it does not compute the attention weights that --guided-alignment trains"
    if config.d_k != config.d_v:
        return f"its attention does not work with --d-k {config.d_k} and --d-v {config.d_v}"
    return None


def obstacle_to_kernel(heads: int, d_k: int, device: torch.device, dropout: float = 0.0) -> str | None:
    """Describes why the kernel does not work here with these sizes; returns None if it computes what it should.

    The supported sizes depend on Triton and on the GPU, and Triton compiles a part of the kernel with the
    machine's C compiler, so the kernel is tried.
    """
    queries_B, keys_B = (torch.tensor(lengths, device=device) for lengths in ([3, 40, 1], [7, 5, 9]))
    try:
        is_right = _is_right(queries_B, keys_B, heads, d_k, dropout, causal=False) and _is_right(
            queries_B, queries_B, heads, d_k, dropout, causal=True
        )
    except Exception as error:  # Triton raises many types of errors
        return (
            f"the kernel of attention does not work here ({_first_line(error)}); if a C compiler or Python.h is "
            f"missing, install gcc and python3-dev"
        )
    return None if is_right else f"the kernel of attention computes wrong values with --d-k {d_k}"


def _is_right(queries_B: Tensor, keys_B: Tensor, heads: int, d_k: int, dropout: float, *, causal: bool) -> bool:
    """Returns whether the kernel in bf16 agrees with `scaled_dot_product_attention` in fp32 for these lengths.

    With dropout, there is nothing to compare with, and the results must be finite.
    """
    lengths, device = (queries_B, keys_B), queries_B.device
    starts = sentence_starts(queries_B), sentence_starts(keys_B)
    mask = PackedMask(*starts, int(queries_B.max()), int(keys_B.max()), causal)
    sentences_F, sentences_G = (torch.arange(len(n_B), device=device).repeat_interleave(n_B) for n_B in lengths)
    visible_FG = sentences_F[:, None] == sentences_G
    visible_FG = visible_FG.tril() if causal else visible_FG
    draw = partial(torch.randn, generator=torch.Generator(device).manual_seed(0), device=device)
    # Queries, keys and values are slices of wider tensors, as in the model.
    wider = [draw(len(flat), 2 * heads, d_k) for flat in (sentences_F, sentences_G, sentences_G)]
    grad_FHK = draw(len(sentences_F), heads, d_k)

    def results(attend: Callable[..., Tensor], dtype: torch.dtype) -> list[Tensor]:
        inputs = [x.to(dtype)[:, :heads].requires_grad_() for x in wider]
        attended_FHK = attend(*inputs)
        return [attended_FHK, *torch.autograd.grad(attended_FHK, inputs, grad_FHK.to(dtype))]

    def exact(q_FHK: Tensor, k_GHK: Tensor, v_GHK: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1) for x in (q_FHK, k_GHK, v_GHK))
        return F.scaled_dot_product_attention(q, k, v, visible_FG).transpose(0, 1)

    outputs = results(partial(mask.attend, scale=d_k**-0.5), torch.bfloat16)
    random = results(partial(mask.attend, scale=d_k**-0.5, dropout=dropout), torch.bfloat16) if dropout else []
    expected = results(exact, torch.float32)
    are_right = all(bool((x - y).norm() < _TOLERANCE * y.norm()) for x, y in zip(outputs, expected, strict=True))
    return are_right and all(bool(x.isfinite().all()) for x in random)


def compile_layers(model: Transformer) -> None:
    """Makes torch compile the model's layers when they first meet a packed batch: once for batches of any size.

    Layers of padded batches are not compiled, because they would compile anew for many shapes.
    """
    compiled = torch.compile(_forward, dynamic=True)

    def forward(layer: nn.Module, *inputs: Any) -> Tensor:
        return (compiled if any(isinstance(value, PackedMask) for value in inputs) else _forward)(layer, *inputs)

    for layer in (*model.encoder, *model.decoder):
        layer.forward = partial(forward, layer)


def _forward(layer: nn.Module, *inputs: Any) -> Tensor:
    """Returns the layer's output. Compiling this function compiles once for all layers of a kind."""
    return type(layer).forward(layer, *inputs)


def obstacle_to_compiling(device: torch.device) -> str | None:
    """Describes why torch cannot compile here; returns None if it can.

    Compiling needs a C compiler, and on a GPU triton.
    """
    try:
        torch.compile(lambda x: (x + 1).sin())(torch.ones(8, device=device))
    except Exception as error:  # torch.compile raises many types of errors
        return f"torch cannot compile ({_first_line(error)})"
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).splitlines()[0]
