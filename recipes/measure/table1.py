"""Times one layer of each kind in the paper's Table 1, for several lengths n at a fixed width d and vice versa.

A layer maps the n vectors of one sentence, of width d, to n vectors of the same width. Each measurement times the
forward pass in fp32. As in the paper, self-attention excludes its four projections, which cost O(n d²). A separate row
includes them.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.attention import DotProduct, attend
from nmt.model.masks import Layout, Mask, self_attention_mask
from nmt.model.transformer import MultiHeadAttention

HEADS, WINDOW, KERNEL = 8, 64, 3
WIDTH = 512  # while the length varies
LENGTH = 512  # while the width varies
LENGTHS = {"cpu": [256, 512, 1024, 2048, 4096], "cuda": [1024, 2048, 4096, 8192, 16384]}
WIDTHS = {"cpu": [128, 256, 512, 1024, 2048], "cuda": [512, 1024, 2048, 4096, 8192]}
COLOURS = ["#2f6fdf", "#7aa5f0", "#e07b00", "#1f9d55", "#c2348f"]


@dataclass(frozen=True)
class Kind:
    """A row of the table: how to make the layer from n, d and the device, and what the paper says of it."""

    name: str
    make: Callable[[int, int, str], Callable[[Tensor], Tensor]]
    complexity: str
    powers: tuple[float, float]  # exponents of n and d
    sequential: str
    path: str


def whole_sentence(n: int, device: str) -> Layout:
    """Returns the layout of one sentence of n positions."""
    return Layout.of_padded(torch.ones(1, n, dtype=torch.long, device=device))


def attention_only(d: int, mask: Mask) -> Callable[[Tensor], Tensor]:
    function = DotProduct(d // HEADS, 0.0, scaled=True)

    def layer(x_ND: Tensor) -> Tensor:
        x_NHK = x_ND.unflatten(-1, (HEADS, -1))
        return attend(x_NHK, x_NHK, x_NHK, mask, function)

    return layer


def self_attention(n: int, d: int, device: str) -> Callable[[Tensor], Tensor]:
    return attention_only(d, self_attention_mask(whole_sentence(n, device), None, causal=False))


def restricted_attention(n: int, d: int, device: str) -> Callable[[Tensor], Tensor]:
    return attention_only(d, self_attention_mask(whole_sentence(n, device), WINDOW, causal=False))


def projected_attention(n: int, d: int, device: str) -> Callable[[Tensor], Tensor]:
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "d_model": d, "d_ff": d, "d_k": d // HEADS, "d_v": d // HEADS}
    layer = MultiHeadAttention(ModelConfig(heads=HEADS, dropout=0.0, **sizes), cross=False).to(device)
    mask = self_attention_mask(whole_sentence(n, device), None, causal=False)
    return lambda x_ND: layer(x_ND, None, mask)


def recurrent(_: int, d: int, device: str) -> Callable[[Tensor], Tensor]:
    layer = nn.LSTM(d, d).to(device)
    return lambda x_ND: layer(x_ND)[0]


def convolution(_: int, d: int, device: str) -> Callable[[Tensor], Tensor]:
    layer = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2).to(device)
    return lambda x_ND: layer(x_ND.T[None])


KINDS = [
    Kind("self-attention", self_attention, "O(n² d)", (2, 1), "O(1)", "O(1)"),
    Kind("attention + projections", projected_attention, "O(n² d + n d²)", (2, 2), "O(1)", "O(1)"),
    Kind("recurrent (LSTM)", recurrent, "O(n d²)", (1, 2), "O(n)", "O(n)"),
    Kind(f"convolution, k {KERNEL}", convolution, "O(k n d²)", (1, 2), "O(1)", "O(log_k n)"),
    Kind(f"self-attention, r {WINDOW}", restricted_attention, "O(r n d)", (1, 1), "O(1)", "O(n / r)"),
]


@torch.no_grad()
def seconds(kind: Kind, n: int, d: int, device: str, repeats: int) -> float:
    """Returns the median time of one pass in seconds. Each repeat times as many passes as fit into 0.05 seconds."""
    layer = kind.make(n, d, device)
    x_ND = torch.randn(n, d, device=device)

    def passes(count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            layer(x_ND)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    passes(2)
    count = max(1, math.ceil(0.05 / max(passes(1), 1e-6)))
    return statistics.median(passes(count) / count for _ in range(repeats))


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Returns the slope of log(time) over log(size), fitted to the three largest sizes by least squares."""
    x, y = ([math.log(value) for value in values[-3:]] for values in (sizes, times))
    mean_x, mean_y = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


@dataclass(frozen=True)
class Measured:
    """The seconds that one kind of layer takes for each n and each d, and the exponents fitted to them."""

    name: str
    over_n: list[float]
    over_d: list[float]
    exponent_n: float
    exponent_d: float


def measure(kind: Kind, device: str, repeats: int) -> Measured:
    over_n = [seconds(kind, n, WIDTH, device, repeats) for n in LENGTHS[device]]
    over_d = [seconds(kind, LENGTH, d, device, repeats) for d in WIDTHS[device]]
    return Measured(kind.name, over_n, over_d, exponent(LENGTHS[device], over_n), exponent(WIDTHS[device], over_d))


def panel(title: str, sizes: Sequence[int], series: Sequence[Sequence[float]], left: int) -> list[str]:
    """Returns the SVG elements of one log-log chart."""
    width, height, top = 330, 260, 40
    flat = [math.log10(t) for times in series for t in times]
    low, high = math.floor(min(flat)), math.ceil(max(flat))

    def at(size: int, t: float) -> tuple[float, float]:
        x = left + width * math.log(size / sizes[0]) / math.log(sizes[-1] / sizes[0])
        return x, top + height * (high - math.log10(t)) / (high - low)

    parts = [f'<text x="{left}" y="22" font-weight="bold">{title}</text>']
    for power in range(low, high + 1):
        y = at(sizes[0], 10.0**power)[1]
        parts.append(f'<line x1="{left}" x2="{left + width}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{10.0 ** (power + 3):g} ms</text>')
    for size in sizes:
        parts.append(f'<text x="{at(size, 1)[0]}" y="{top + height + 18}" text-anchor="middle">{size}</text>')
    for times, colour in zip(series, COLOURS, strict=True):
        points = " ".join("{:.1f},{:.1f}".format(*at(*pair)) for pair in zip(sizes, times, strict=True))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    return parts


def as_svg(measurements: list[Measured], device: str) -> str:
    parts = panel(f"time over n, d = {WIDTH}", LENGTHS[device], [m.over_n for m in measurements], 70)
    parts += panel(f"time over d, n = {LENGTH}", WIDTHS[device], [m.over_d for m in measurements], 490)
    for row, (m, colour) in enumerate(zip(measurements, COLOURS, strict=True)):
        y = 350 + 20 * row
        parts.append(f'<rect x="70" y="{y - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="90" y="{y}">{m.name}: n^{m.exponent_n:.2f}, d^{m.exponent_d:.2f}</text>')
    opening = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 460" font-family="sans-serif" font-size="12">'
    return "\n".join([opening, '<rect width="850" height="460" fill="white"/>', *parts, "</svg>\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder for table1.json and table1.svg")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeats", type=int, default=5, help="times that each layer and size is measured")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats must be at least 1, but is {options.repeats}")
    torch.manual_seed(0)
    lengths, widths = LENGTHS[options.device], WIDTHS[options.device]
    print(f"{'layer':24} {'complexity':15} {'n^':>5} {'d^':>5}   {'sequential':11} {'path':12}", end="")
    print(f"ms at n = {', '.join(map(str, lengths))} (d {WIDTH}); at d = {', '.join(map(str, widths))} (n {LENGTH})")
    measurements = []
    for kind in KINDS:
        m = measure(kind, options.device, options.repeats)
        measurements.append(m)
        n_times, d_times = (" ".join(f"{1000 * t:8.2f}" for t in times) for times in (m.over_n, m.over_d))
        print(
            f"{kind.name:24} {kind.complexity:15} {m.exponent_n:5.2f} {m.exponent_d:5.2f}   {kind.sequential:11} "
            f"{kind.path:12}{n_times} ;{d_times}",
            flush=True,
        )
    options.run.mkdir(parents=True, exist_ok=True)
    rows = [
        {**asdict(m), **{k: v for k, v in asdict(kind).items() if k != "make"}}
        for m, kind in zip(measurements, KINDS, strict=True)
    ]
    content = {"device": options.device, "lengths": lengths, "widths": widths, "rows": rows}
    (options.run / "table1.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    (options.run / "table1.svg").write_text(as_svg(measurements, options.device), encoding="utf-8")


if __name__ == "__main__":
    main()
