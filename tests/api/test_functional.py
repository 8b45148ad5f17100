"""Ops as functions on arrays: backends, tiers, in-place updates, other array libraries."""

from __future__ import annotations

import numpy as np
import pytest

from samebits import functional as F
from samebits.core.errors import BadInput, SamebitsError, Unsupported
from samebits.formats import Q8_0
from samebits.ops import OPS, call, make_inputs
from samebits.ops.rope import rope, rope_table

X = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
W = np.ones(64, np.float32)


def test_every_op_and_alias_is_a_function_with_the_records_text() -> None:
    for op in OPS:
        for name in (op.name, *op.aliases):
            function = getattr(F, name)
            assert all(t.name in function.__doc__ for t in op.inputs)
    assert "batch_prefill_with_kv_cache" in dir(F)
    with pytest.raises(AttributeError, match="has no op 'conv9'"):
        F.conv9  # noqa: B018


@pytest.mark.parametrize("tier", ["fast", "invariant", "portable", None])
def test_reference_gives_the_definitions_bits_at_every_tier(tier: str | None) -> None:
    want = call(OPS["rms_norm"], X, W, eps=1e-6)
    assert F.rms_norm(X, W, eps=1e-6, numerics=tier).tobytes() == want.tobytes()


def test_null_computes_nothing_and_refuses_every_tier() -> None:
    assert F.rms_norm(X, W, backend="null").tolist() == np.zeros((3, 64)).tolist()
    with pytest.raises(Unsupported, match=r"null: rms_norm\(x: f32, weight: f32\) at portable"):
        F.rms_norm(X, W, backend="null", numerics="portable")


def test_caches_are_updated_in_the_callers_array() -> None:
    op = OPS["append_paged_kv_cache"]
    case = next(c for c in op.cases if c.id == "q8_0-q4_0")
    direct, through = make_inputs(op, case), make_inputs(op, case)
    call(op, **direct)
    k_cache, v_cache = F.append_paged_kv_cache(**through)
    assert k_cache is through["k_cache"]
    assert through["k_cache"].data.tobytes() == direct["k_cache"].data.tobytes()
    assert v_cache.data.tobytes() == direct["v_cache"].data.tobytes()


def test_null_leaves_caches_alone() -> None:
    op = OPS["append_paged_kv_cache"]
    inputs = make_inputs(op, op.cases[0])
    before = inputs["k_cache"].tobytes()
    F.append_paged_kv_cache(**inputs, backend="null")
    assert inputs["k_cache"].tobytes() == before


def test_llama31_rope_in_place_is_rope_with_its_table() -> None:
    q, k = (np.random.default_rng(i).standard_normal((4, 2, 16)).astype(np.float32) for i in (0, 1))
    pos = np.array([0, 7, 3, 100], np.int32)
    table = rope_table(101, 16, theta=5e5, scaling="llama31", factor=8.0)
    want = rope(q, pos, table), rope(k, pos, table)
    F.apply_llama31_rope_pos_ids_inplace(q, k, pos)
    assert q.tobytes() == want[0].tobytes()
    assert k.tobytes() == want[1].tobytes()


def test_llama31_rope_refuses_what_it_cannot_write_before_writing() -> None:
    q = np.ones((1, 1, 16), np.float32)
    k = np.ones((1, 1, 16), np.float32)
    k.flags.writeable = False
    with pytest.raises(BadInput, match="a writable array"):
        F.apply_llama31_rope_pos_ids_inplace(q, k, np.array([5], np.int32))
    assert (q == 1).all()


def test_packed_weights_go_in_as_they_are() -> None:
    weight = Q8_0.pack(np.random.default_rng(1).standard_normal((8, 64)))
    assert F.gemm(X, weight).shape == (3, 8)


class DLPackOnly:
    """An array of another library: nothing but the protocol."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_dlpack_arrays_are_read() -> None:
    got = F.rms_norm(DLPackOnly(X), weight=DLPackOnly(W))
    assert got.tobytes() == F.rms_norm(X, W).tobytes()


def test_torch_tensors_in_give_torch_tensors_out() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.from_numpy(X).to(dtype)
        y = F.rms_norm(x, torch.from_numpy(W))
        assert y.dtype == dtype
        assert torch.allclose(y.float(), torch.nn.functional.rms_norm(x.float(), (64,), eps=1e-5), atol=2e-2)
    residual = torch.zeros(3, 64)
    F.fused_add_rms_norm(torch.from_numpy(X), residual, torch.from_numpy(W))
    assert torch.equal(residual, torch.from_numpy(X))


@pytest.mark.parametrize(
    ("call_it", "message"),
    [
        (lambda: F.rms_norm([1.0, 2.0]), "rms_norm: x is list, but must be a numpy array or a packed tensor"),
        (lambda: F.rms_norm(X, backend="nope"), "unknown backend 'nope'"),
        (lambda: F.rms_norm(X, numerics="exact"), "numerics tier is 'exact', but must be one of fast"),
    ],
)
def test_mistakes_are_one_line(call_it: object, message: str) -> None:
    with pytest.raises(SamebitsError) as error:
        call_it()  # type: ignore[operator]
    assert message in str(error.value)
    assert "\n" not in str(error.value)
