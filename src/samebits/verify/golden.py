"""Golden artifacts: stored inputs and outputs that any backend can be compared with."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from samebits.backends.discovery import Found
from samebits.backends.support import check_tier
from samebits.core.errors import BadInput, SamebitsError, Unavailable, Unsupported
from samebits.core.format import HostTensor, Packed, format_of
from samebits.core.numerics import NUMERICS_VERSION
from samebits.core.tiers import Tier
from samebits.ops import OPS, Op, bind, make_inputs
from samebits.ops.record import Case
from samebits.verify.artifacts import ARTIFACT_VERSION, META, SIDES, Artifact, as_little, read_artifact
from samebits.verify.compare import beyond_bounds, difference
from samebits.verify.harness import Outcome, execute, raw_bytes
from samebits.verify.select import find_case

GENERATOR = "threefry2x32-20"

# The set in the repository: small, quick, every op; more of those that the source documents require.
SMALL_SET: dict[str, tuple[str, ...]] = {
    "gemm": (
        "bias-bf16",
        "bias-q4_1",
        "odd-k-f16",
        "tail-chunk-q8_0",
        "small-q4_k",
        "small-q6_k",
        "small-nvfp4",
        "small-mxfp4",
        "small-q2_k",
        "small-q3_k",
        "small-iq4_nl",
        "small-iq4_xs",
    ),
    "embedding": ("to-bf16", "small-q8_0", "small-q5_k", "small-nvfp4", "small-mxfp4", "small-q2_k", "small-q3_k"),
    "gemm_q8": ("bias-q4_1",),
    "gemm_silu_q8": ("small-q4_1",),
    "rms_norm": ("small-f16", "mul-add", "odd-width"),
    "rope_and_append": ("interleave",),
    "rope_both_and_append": ("q8_0-q4_0",),
    "silu_and_mul": ("small-f32", "small-f16", "small-bf16"),
    "soft_cap": ("gemma-2",),
    "softmax": ("scale-cap", "mask-all", "sinks"),
    "top_k": ("small-f32", "small-bf16", "ties"),
    "paged_attention": (
        "k-q8_0-v-q8_0",
        "k-q4_0-v-q4_0",
        "bf16-q",
        "hnd",
        "unified",
        "unified-hnd",
        "mla",
        "lse-masked",
        "empty-sequence",
    ),
    "route": ("mixtral", "gpt-oss", "groups", "ties"),
    "expert_layout": ("small",),
    "expert_gemm": ("bias-bf16", "bias-q4_1", "rows-per-pair-f32"),
    "expert_gemm_q8": ("bias-q4_1", "rows-per-pair"),
    "expert_gate_q8": ("gelu_tanh", "gpt-oss"),
    "clamped_swiglu": ("small-f32", "beyond-limits"),
    "combine": ("shared", "shared-gate", "small-bf16"),
    "grouped_gemm": ("indices", "small-bf16", "small-q4_k"),
    "head_gemm": ("odd-k-f16", "small-q8_0"),
    "rope": ("small-bf16", "interleave", "partial"),
    "append_paged_kv_cache": ("q8_0-q4_0", "hnd", "unified", "unified-hnd-q8_0", "mla", "head-80-q8_0", "page-edge"),
    "add": ("one-row",),
    "mul": ("small-bf16",),
    "scale": ("small-f16",),
    "cast": ("f32-to-bf16",),
    "argmax": ("ties",),
    "sample": ("penalties",),
    "merge_state": ("one-empty",),
    "convert_kv_layout": ("split-q8_0",),
    "copy_kv_pages": ("q8_0-q4_0",),
    "copy_slots": ("state",),
    "causal_conv": ("ends",),
    "gated_delta_rule": ("resumed",),
    "ssm_scan": ("ends",),
    "l2_norm": ("small-bf16",),
    "gated_rms_norm": ("groups",),
    "sigmoid_and_mul": ("small-f16",),
    "fused_add_rms_norm": ("f32-residual-bf16-x",),
    "add_rms_norm_q8": ("f32-residual-bf16-x",),
    "gelu_and_mul": ("erf-bf16",),
    "layer_norm": ("mul-add",),
    "quantize_q8": ("small-f32",),
    "top_k_mask_logits": ("ties",),
    "split_heads": ("small-f16",),
    "merge_heads": ("small-bf16",),
    "slice_columns": ("small-f32",),
    "concat_columns": ("small-bf16",),
}


@dataclass(frozen=True)
class Verdict:
    """The verdict on one artifact; `broken` means that it cannot be used."""

    op: str
    case: str
    status: Literal["pass", "fail", "unsupported", "broken"]
    reason: str = ""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def chosen_cases(op: str | None, *, small: bool, full: bool) -> list[tuple[Op, Case]]:
    """The cases to make: SMALL_SET, or those of the quick or full set; of one op if named."""
    if small and full:
        raise BadInput("golden", "--small and --full", "both", "one of them")
    ops = [OPS[op]] if op else list(OPS)
    if small:
        return [(o, find_case(o, case)) for o in ops for case in SMALL_SET.get(o.name, ())]
    return [(o, c) for o in ops for c in o.cases if full or not c.full]


def make_artifact(found: Found, op: Op, case: Case, seed: int, tier: Tier) -> Artifact:
    """Runs a case on a backend; Unsupported where it has no kernel, SamebitsError where it misbehaves."""
    bound = bind(op, **make_inputs(op, case, seed))
    outcome = _run(found, op, {**bound.tensors, **bound.attrs}, tier)
    if outcome.findings:
        raise SamebitsError(f"{op.name}/{case.id}: {outcome.findings[0].check}: {outcome.findings[0].where}")
    results = op.active_results(bound.tensors, bound.attrs)
    outputs = {r.name: x for r, x in zip(results, outcome.results, strict=True)}
    provenance = {
        "backend": found.name,
        "device": found.caps.device if found.caps else "",
        "tier": tier.label,
        "seed": seed,
        "generator": GENERATOR,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    return Artifact(op, case.id, bound.attrs, bound.tensors, outputs, provenance)


def _run(found: Found, op: Op, inputs: dict[str, Any], tier: Tier) -> Outcome:
    if found.backend is None or found.caps is None:
        raise Unavailable(f"backend {found.name}: {found.reason}")
    check_tier(found.backend, found.caps, tier)
    try:
        with np.errstate(all="ignore"):  # stored contents may hold any bits
            return execute(found.backend, op, inputs, tier)
    except Unsupported:
        raise
    except Exception as error:  # any exception of a backend under test is its failure, with its text
        raise SamebitsError(f"error: {type(error).__name__}: {' '.join(str(error).split())}") from error


def _stored(x: HostTensor) -> bytes:
    return raw_bytes(x if isinstance(x, Packed) else as_little(x)).tobytes()


def _entry(x: HostTensor, data: bytes) -> dict[str, Any]:
    entry = {"format": format_of(x).name, "shape": list(x.shape), "sha256": hashlib.sha256(data).hexdigest()}
    return {**entry, "scale": float(x.scale)} if isinstance(x, Packed) else entry


def write_artifact(root: Path, artifact: Artifact, force: bool = False) -> int:
    """Writes ROOT/OP/CASE in one step and returns its bytes; BadInput where it exists, unless `force`."""
    target = root / artifact.op.name / artifact.case
    refuse_existing([target], force)
    meta: dict[str, Any] = {
        "version": ARTIFACT_VERSION,
        "op": artifact.op.name,
        "case": artifact.case,
        "config": artifact.attrs,
        "numerics_version": artifact.numerics_version,
        "samebits": artifact.package_version,
        "provenance": artifact.provenance,
    }
    files = {}
    for side, tensors in zip(SIDES, (artifact.inputs, artifact.outputs), strict=True):
        stored = {name: _stored(x) for name, x in tensors.items()}
        meta[side] = {name: _entry(x, stored[name]) for name, x in tensors.items()}
        files.update({f"{SIDES[side]}.{name}.bin": data for name, data in stored.items()})
    files[META] = (json.dumps(meta, indent=1) + "\n").encode()
    try:
        _write_folder(target, files)
    except OSError as error:
        raise BadInput("golden", str(target), error.strerror, "a place that can be written") from None
    return sum(map(len, files.values()))


def refuse_existing(targets: list[Path], force: bool) -> None:
    """BadInput for the first target that exists, unless they may be replaced."""
    for target in targets:
        if target.exists() and not force:
            raise BadInput("golden", str(target), "a folder that exists", "another DIR, or --force to replace it")


def _write_folder(target: Path, files: dict[str, bytes]) -> None:
    """A hidden folder beside the target becomes the target; a failure leaves what was there."""
    fresh, old = (target.with_name(f".{target.name}.{kind}.{os.getpid()}") for kind in ("new", "old"))
    try:
        fresh.mkdir(parents=True)
        for name, data in files.items():
            (fresh / name).write_bytes(data)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def check_folder(found: Found, folder: Path, key: tuple[str, str], tier: Tier) -> Verdict:
    """Reads one artifact, runs its inputs on the backend and compares with its outputs."""
    started = time.perf_counter()
    name, case = key if key[0] else (folder.parent.name, folder.name)
    try:
        artifact = read_artifact(folder, key)
        name, case = artifact.op.name, artifact.case
        if tier is Tier.PORTABLE and artifact.numerics_version != NUMERICS_VERSION:
            made = f"bits of numerics version {artifact.numerics_version}"
            raise BadInput(f"{name}/{case}", "outputs", made, f"version {NUMERICS_VERSION}, or --tier fast")
    except BadInput as error:
        return Verdict(name, case, "broken", str(error))
    try:
        outcome = _run(found, artifact.op, {**artifact.inputs, **artifact.attrs}, tier)
    except Unsupported as error:
        return Verdict(name, case, "unsupported", str(error))
    except SamebitsError as error:
        return Verdict(name, case, "fail", str(error))
    reason = _difference(artifact, outcome, tier)
    return Verdict(name, case, "fail" if reason else "pass", reason, time.perf_counter() - started)


def _difference(artifact: Artifact, outcome: Outcome, tier: Tier) -> str:
    """The first finding, or the first result that differs: in bits at portable, beyond its bounds elsewhere."""
    for finding in outcome.findings:
        return f"{finding.check}: {finding.where}"
    check, find = ("bits", difference) if tier is Tier.PORTABLE else ("values", beyond_bounds)
    with np.errstate(all="ignore"):
        found = ((name, find(artifact, name, got)) for name, got in zip(artifact.outputs, outcome.results, strict=True))
        return next((f"{check}: {name}: {where}" for name, where in found if where), "")
