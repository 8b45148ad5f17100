"""Bars of the gated delta rule on a GPU: `python benchmarks/recurrent_bars.py [--only "decode 64"] [--json bars.json]`.

16 heads of q and k, 32 of v, 128 x 128, portable tier; prompts in the fast tier too, with their error against the
portable result. Bits of small cases are compared with the reference first. A figure is the median over replays of a
captured graph. Decode: launches go through all 16 places of a chunk, sequences are at different ones, and states of
several layers take turns, so that none is in the last cache. Prefill: from position 0. With TRITON_INTERPRET=1 and no
GPU, bits are compared on the host and nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from samebits.core.errors import Unavailable
from samebits.kernels.triton import toolchain
from samebits.ops import OPS, make_inputs
from samebits.ops.recurrence import ring_width
from samebits.ops.slots import CHUNK

KEY_HEADS, HEADS, KEY_DIM, VALUE_DIM = 16, 32, 128, 128
STATE_BYTES = HEADS * KEY_DIM * VALUE_DIM * 4  # of a sequence
COLD_BYTES = 256 << 20  # of all states of a measurement: more than a last cache holds
ATTRS: dict[str, Any] = {"scale": KEY_DIM**-0.5, "v_heads": "grouped"}
DEPTH = 512  # position of a sequence that decodes
WARM_UPS, SAMPLES = 3, 25
CHECKED = {"gated_delta_rule": ("decode", "mixed", "tiled"), "ssm_scan": ("decode", "ends"), "causal_conv": ("mixed",)}


@dataclass(frozen=True)
class Bar:
    """One step of num_sequences with num_tokens each; `need` is the most microseconds it may take."""

    name: str
    num_sequences: int
    num_tokens: int
    need: float | None
    is_fast: bool = False

    @property
    def is_decode(self) -> bool:
        return self.num_tokens == 1


BARS = (
    Bar("decode 1", 1, 1, None),
    Bar("decode 16", 16, 1, None),
    Bar("decode 64", 64, 1, 48),
    Bar("decode 256", 256, 1, 155),
    Bar("prefill 1 x 4096", 1, 4096, 1000),
    Bar("prefill 8 x 1024", 8, 1024, 1200),
    Bar("fast prefill 1 x 4096", 1, 4096, 300, is_fast=True),
    Bar("fast prefill 8 x 1024", 8, 1024, 300, is_fast=True),
)


def run_op(name: str, inputs: dict[str, Any], attrs: dict[str, Any], *, is_fast: bool = False) -> tuple[Any, ...]:
    from samebits.core.tiers import Tier
    from samebits.kernels.triton.table import triton_kernels

    tier = Tier.FAST if is_fast else Tier.PORTABLE
    return next(kernel for kernel in triton_kernels()[name] if kernel.tier is tier).run(**inputs, **attrs)


def differing(name: str, case_id: str, device: Any) -> list[str]:
    """Results of a case that do not have the reference's bits; memory that nobody reads is NaN in both."""
    import torch

    op = OPS[name]
    case = next(c for c in op.cases if c.id == case_id)
    arrays = {key: x for key, x in make_inputs(op, case).items() if isinstance(x, np.ndarray)}
    wanted = op.reference(**{key: x.copy() for key, x in arrays.items()}, **case.attrs)
    given = {key: torch.from_numpy(x.copy()).to(device) for key, x in arrays.items()}
    with np.errstate(all="ignore"):
        results = run_op(name, given, case.attrs)
    pairs = zip(op.results, results, wanted, strict=True)
    return [f"{name} {case_id}: {r.name}" for r, got, want in pairs if got.cpu().numpy().tobytes() != want.tobytes()]


class Work:
    """Inputs of a bar on a device, and its launches: one per layer, or one for each place of a chunk."""

    def __init__(self, bar: Bar, device: Any) -> None:
        import torch

        self._bar, self._device = bar, device
        torch.manual_seed(0)
        count = bar.num_sequences
        tokens = count * bar.num_tokens
        keys = [torch.nn.functional.normalize(self._normal(tokens, KEY_HEADS, KEY_DIM), dim=-1) for _ in range(2)]
        self._constant = {
            **{"q": keys[0], "k": keys[1], "v": self._normal(tokens, HEADS, VALUE_DIM)},
            **{"a": self._normal(tokens, HEADS), "b": self._normal(tokens, HEADS)},
            **{"decay": -self._normal(HEADS).abs(), "dt_bias": self._normal(HEADS)},
            "qo_indptr": self._int32(np.arange(count + 1) * bar.num_tokens),
            "slots": self._int32(np.random.default_rng(0).permutation(count)),
        }
        num_layers = -(-COLD_BYTES // (count * STATE_BYTES)) if bar.is_decode else 1
        width = ring_width(KEY_HEADS, KEY_DIM, HEADS, VALUE_DIM)
        self._layers = [
            (self._normal(count, HEADS, KEY_DIM, VALUE_DIM) * 0.1, self._normal(count, CHUNK, width) * 0.1)
            for _ in range(num_layers)
        ]
        for _, ring in self._layers:
            ring[..., -HEADS:] = -ring[..., -HEADS:].abs().cumsum(1)
        starts = [DEPTH + i for i in range(CHUNK)] if bar.is_decode else [0]
        self._positions = [self._int32(self._positions_from(start)) for start in starts]
        self.num_launches = max(num_layers, len(starts))
        if bar.is_decode:
            self.num_launches = -(-self.num_launches // CHUNK) * CHUNK

    def _normal(self, *shape: int) -> Any:
        import torch

        return torch.randn(shape, dtype=torch.float32, device=self._device)

    def _int32(self, values: np.ndarray) -> Any:
        import torch

        return torch.from_numpy(values.astype(np.int32)).to(self._device)

    def _positions_from(self, start: int) -> np.ndarray:
        """Sequences that decode are at all places of a chunk."""
        bar = self._bar
        firsts = start + (np.arange(bar.num_sequences) if bar.is_decode else np.zeros(bar.num_sequences, np.int64))
        return (firsts[:, None] + np.arange(bar.num_tokens)).reshape(-1)

    def launch(self) -> None:
        for i in range(self.num_launches):
            state, ring = self._layers[i % len(self._layers)]
            positions = self._positions[i % len(self._positions)]
            inputs = {**self._constant, "state": state, "ring": ring, "positions": positions}
            run_op("gated_delta_rule", inputs, ATTRS, is_fast=self._bar.is_fast)

    def error(self) -> float:
        """The root mean square of what this tier's outputs are off by, of that of the portable ones."""
        state, ring = self._layers[0]
        inputs = {**self._constant, "positions": self._positions[0]}
        one, other = (
            run_op("gated_delta_rule", {**inputs, "state": state.clone(), "ring": ring.clone()}, ATTRS, is_fast=fast)[0]
            for fast in (self._bar.is_fast, False)
        )
        return float(((one - other).square().mean() / other.square().mean()).sqrt())


def graph_microseconds(launch: Callable[[], None]) -> list[float]:
    """Microseconds of replays of what `launch` launches, captured."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    samples = []
    for i in range(WARM_UPS + SAMPLES):
        started, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        started.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        if i >= WARM_UPS:
            samples.append(started.elapsed_time(ended) * 1000)
    return samples


def device_or_reason() -> tuple[Any, str]:
    """(torch's device or None, why nothing can be timed)."""
    try:
        toolchain()
    except Unavailable as error:
        return None, str(error)
    import torch

    if torch.cuda.is_available():
        return torch.device("cuda"), ""
    from samebits.kernels.triton.lib.registry import INTERPRETED

    reason = "no GPU can be used here: run this where `samebits devices` shows cuda"
    return (torch.device("cpu") if INTERPRETED else None), reason


def check_bits(device: Any, console: Console) -> bool:
    failures = [line for name, ids in CHECKED.items() for case_id in ids for line in differing(name, case_id, device)]
    for line in failures:
        console.print(f"{line} differs from the reference")
    if not failures:
        console.print(f"bits of {sum(map(len, CHECKED.values()))} small cases: the reference's", highlight=False)
    return not failures


def measure(bars: list[Bar], device: Any, console: Console) -> dict[str, Any]:
    table = Table(title="gated delta rule, 16 / 32 heads of 128 x 128")
    for column in ("work", "µs", "fastest", "bar", "verdict", "states, TB/s", "rms error"):
        table.add_column(column)
    from samebits.kernels.triton.lib.faults import raise_if_any

    results = {}
    for bar in bars:
        work = Work(bar, device)
        samples = [sample / work.num_launches for sample in graph_microseconds(work.launch)]
        raise_if_any(device)  # what was refused computed nothing
        median = statistics.median(samples)
        verdict = "" if bar.need is None else "met" if median <= bar.need else "missed"
        read = f"{bar.num_sequences * STATE_BYTES / median / 1e6:.2f}" if bar.is_decode else ""
        error = work.error() if bar.is_fast else 0.0
        results[bar.name] = {
            **{"microseconds": median, "fastest": min(samples), "need": bar.need, "verdict": verdict},
            "rms_error": error,
        }
        need = "" if bar.need is None else f"{bar.need:g}"
        table.add_row(
            bar.name, f"{median:.1f}", f"{min(samples):.1f}", need, verdict, read, f"{error:.1e}" if error else ""
        )
        del work
    console.print(table)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help='part of a bar\'s name, such as "decode 64"')
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    console = Console()
    bars = [bar for bar in BARS if not asked.only or any(text in bar.name for text in asked.only)]
    if not bars:
        parser.error(f"--only: no bar of that name; there are {', '.join(bar.name for bar in BARS)}")
    device, reason = device_or_reason()
    is_right = device is not None and check_bits(device, console)
    if reason:
        console.print(reason, highlight=False, markup=False)
    if reason or not is_right:
        return 1
    results = measure(bars, device, console)
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
