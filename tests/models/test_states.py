"""States as a model declares them: a latent cache, one tensor of which values are a part, runs like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from checkpoint_runs import DATA

from samebits import SamplingParams
from samebits.backends.discovery import default_name, get
from samebits.core.errors import BadInput
from samebits.core.shapes import Sym, TensorSpec
from samebits.engine.engine import Engine
from samebits.engine.runner import Runner
from samebits.models.checkpoint import FileCheckpoint, build_step, open_checkpoint
from samebits.models.parts import Limits, ModelParts, StepGraph
from samebits.models.parts.state import Paged, Slot, tensor_groups, window_groups

KEY_SIZE, VALUE_SIZE = 24, 12  # values are the first half of keys
PARAMS = SamplingParams(max_tokens=20, temperature=0.8, seed=3, n=4, ignore_eos=True, hash_logits=True)


def latent_build(m: ModelParts) -> StepGraph:
    """The llama of the tiny checkpoint with one wide key head, whose first elements are the values."""
    b, h = m.b, m.embed()
    for layer in range(m.config.num_layers):
        name = f"layers.{layer}.attn"
        x = m.norm(h, f"layers.{layer}.attn_norm")
        state = Paged(((KEY_SIZE,),))
        cache, nothing = m.state(f"layers.{layer}", state)
        assert nothing is None
        key, table = b.split_heads(m.linear(x, f"{name}.k"), heads=1), m.page_table(state)
        places = {n: m.step[n] for n in ("batch_indices", "positions")}
        cache = b.append_paged_kv_cache(key, k_cache=cache, **places, **table)
        query = b.split_heads(b.concat_columns(m.linear(x, f"{name}.q"), m.linear(x, f"{name}.q")), heads=4)
        attended = b.paged_attention(query, cache, m.step["qo_indptr"], v_dim=VALUE_SIZE, **table)
        h = b.add(h, m.linear(b.merge_heads(attended), f"{name}.o"))
        h = b.add(h, m.gated_ffn(m.norm(h, f"layers.{layer}.ffn_norm"), layer))
    return m.finish(h)


def latent_checkpoint() -> FileCheckpoint:
    checkpoint = open_checkpoint(DATA / "llama")
    return replace(checkpoint, architecture=replace(checkpoint.architecture, build=latent_build))


@pytest.mark.parametrize("backend", ["reference", default_name()])
def test_a_latent_cache(backend: str) -> None:
    checkpoint = latent_checkpoint()
    runner = Runner(checkpoint, get(backend), Limits(64, 8, 60, page_size=4, max_positions=64))
    assert [n for n, kind in runner.graph.kinds.items() if kind == "cache"] == ["layers.0.k_cache", "layers.1.k_cache"]
    prompts = [[5, 9, 2], [7] * 9, [1, 2, 3, 4, 5, 6]]

    def answers(*asked: list[int]) -> list[object]:
        engine = Engine(runner, checkpoint.tokenizer())
        jobs = [engine.generate(prompt, PARAMS) for prompt in asked]
        engine.complete(*jobs)
        return [answer for job in jobs for answer in job.completions()]

    together = answers(*prompts)
    assert together == [answer for prompt in prompts for answer in answers(prompt)]
    assert len({answer.logits_sha256 for answer in together}) == len(together)  # type: ignore[attr-defined]


def test_groups_of_windows() -> None:
    assert window_groups([9, None, 5, 9]) == (None, 9, 5)
    assert window_groups([4, 8, 4]) == (8, 4)
    rows = (2, 8)
    states = {"a": Paged((rows, rows), 9), "b": Paged(((8,),)), "c": Paged((rows, rows))}
    groups = [[("b.k_cache",), ("c.k_cache", "c.v_cache")], [("a.k_cache", "a.v_cache")]]
    assert tensor_groups({**states, "d": Slot((3,), True)}, (None, 9)) == groups
    assert tensor_groups({"d": Slot((3,), True)}, (None,)) == [[]]


def slots_build(m: ModelParts) -> StepGraph:
    """States in slots beside no pages at all; nothing computes with them."""
    m.state("layers.0.ring", Slot((16, 5), is_resumable=False))
    m.state("layers.0.state", Slot((2, 3), is_resumable=True))
    return m.finish(m.embed())


def test_states_in_slots_are_declared() -> None:
    checkpoint = open_checkpoint(DATA / "llama")
    limits = Limits(64, 20, 60, max_positions=64)
    step = slots_build(ModelParts(checkpoint.config, checkpoint.spec, limits))
    shapes = {v.name: v.spec for v in step.graph.inputs}
    assert shapes["layers.0.ring.slots"] == TensorSpec((40, 16, 5), "f32")
    assert shapes["layers.0.state.slots"] == TensorSpec((40, 2, 3), "f32")
    assert shapes["slots"] == TensorSpec((Sym("B", 20),), "i32")
    assert step.graph.kinds["layers.0.ring.slots"] == "cache"
    assert step.slot_tensors == ("layers.0.ring.slots", "layers.0.state.slots")
    assert step.resumable_tensors == ("layers.0.state.slots",)
    assert step.windows == (None,)


def test_a_model_without_slots_has_no_array_of_them() -> None:
    checkpoint = open_checkpoint(DATA / "llama")
    step = build_step(checkpoint, Limits(64, 8, 60, max_positions=64))
    assert "slots" not in {v.name for v in step.graph.inputs}
    assert step.slot_tensors == ()


def test_slots_ask_for_pages_of_their_chunk() -> None:
    checkpoint = open_checkpoint(DATA / "llama")
    with pytest.raises(BadInput, match="page_size is 8, but must be 16: this model's states"):
        slots_build(ModelParts(checkpoint.config, checkpoint.spec, Limits(64, 8, 60, page_size=8, max_positions=64)))
