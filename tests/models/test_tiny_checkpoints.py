"""Every architecture against transformers' float32 logits, and our promise: the same bits however a prompt is cut."""

from __future__ import annotations

import numpy as np
import pytest
from checkpoint_runs import (
    DATA,
    EXACT_NAMES,
    NAMES,
    NUM_PAGES,
    PAGE_SIZE,
    Part,
    assert_same_bits,
    expected,
    make_runner,
    relative_error,
    run_prompt,
    step_batch,
    whole_prompt,
)

from samebits.models.checkpoint import open_checkpoint

# Largest error over the largest logit, as measured, by the format of keys and values; tests allow twice that.
MEASURED = {
    "llama": {"f32": 1.7e-6, "f16": 3.4e-3, "q8_0": 4.0e-2},
    "llama31": {"f32": 1.0e-6, "f16": 3.2e-3, "q8_0": 3.1e-2},
    "mistral": {"f32": 2.8e-6, "f16": 2.2e-3, "q8_0": 3.2e-2},
    "qwen2": {"f32": 2.1e-6, "f16": 2.6e-3, "q8_0": 2.6e-2},
    "qwen3": {"f32": 1.3e-6, "f16": 1.1e-3, "q8_0": 2.3e-2},
    "qwen3_bf16": {"f32": 7.6e-3, "f16": 8.9e-3, "q8_0": 1.8e-2},  # activations enter products as bf16
    "gemma2": {"f32": 6.0e-7, "f16": 4.8e-4, "q8_0": 1.1e-2},
    "gemma3": {"f32": 4.5e-7, "f16": 4.2e-4, "q8_0": 6.5e-3},
    "phi3": {"f32": 2.3e-6, "f16": 2.3e-3, "q8_0": 6.1e-2},
    "phi3_short": {"f32": 1.9e-6, "f16": 2.4e-3, "q8_0": 5.2e-2},
    "yarn": {"f32": 2.1e-6, "f16": 2.7e-3, "q8_0": 6.2e-2},
}
GGUF_MEASURED = {"llama/model-f32.gguf": 1.7e-6, "llama31/model-f32.gguf": 1.7e-6, "qwen2/model-f16.gguf": 1.8e-3}
GGUF_MEASURED |= {"gemma3/model-f32.gguf": 4.5e-7, "phi3/model-f32.gguf": 1.5e-6, "yarn/model-f32.gguf": 2.1e-6}
GGUF_MEASURED |= {"llama_biases": 3.3e-6, "llama_biases/model-f32.gguf": 2.9e-6}
CUTS = (7, 8, 20, *range(34, 40))  # a chunk, a token, chunks across pages and windows, then token by token


def bound(name: str, kv_format: str) -> float:
    return 2 * MEASURED[name][kv_format]


@pytest.mark.parametrize("kv_format", ["f32", "f16", "q8_0"])
@pytest.mark.parametrize("name", NAMES)
def test_logits_of_transformers(name: str, kv_format: str) -> None:
    want = expected(name)
    assert relative_error(whole_prompt(name, kv_format), want.logits, want.scale) <= bound(name, kv_format)


@pytest.mark.parametrize("name", EXACT_NAMES)
def test_greedy_tokens_of_transformers(name: str) -> None:
    want = expected(name)
    top_two = np.sort(want.logits, axis=-1)[:, -2:]
    is_clear = top_two[:, 1] - top_two[:, 0] > 2 * bound(name, "f32") * want.scale  # both of the two may err
    assert is_clear.all()  # no position of these prompts is a tie
    np.testing.assert_array_equal(whole_prompt(name).argmax(axis=-1), want.logits.argmax(axis=-1))


@pytest.mark.parametrize("file", ["qwen3_bf16", "qwen2/model-f16.gguf"])
def test_16_bit_weights_round_only_what_enters_a_product(file: str) -> None:
    """Until float32's error first tips a rounding, 5 positions and more, the logits agree as in float32."""
    want = expected(file.split("/")[0])
    assert want.rounded is not None
    assert relative_error(whole_prompt(file)[:5], want.rounded[:5], want.scale) <= 3e-7  # measured: 1.2e-7


@pytest.mark.parametrize("kv_format", ["f16", "q8_0"])  # the next two tests cut prompts on a float32 cache
@pytest.mark.parametrize("name", NAMES)
def test_chunks_and_decode_have_the_bits_of_the_whole_prompt(name: str, kv_format: str) -> None:
    runner = make_runner(open_checkpoint(DATA / name), kv_format)
    assert_same_bits(run_prompt(runner, expected(name).token_ids, CUTS), whole_prompt(name, kv_format))


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("name", NAMES)
def test_pages_do_not_move_a_bit(name: str, page_size: int) -> None:
    """Any page size, pages in any order, and what their last owner left in them."""
    token_ids = expected(name).token_ids
    runner = make_runner(open_checkpoint(DATA / name), page_size=page_size)
    pages = np.random.default_rng(page_size).permutation(NUM_PAGES)
    run_prompt(runner, token_ids[::-1].copy(), pages=pages[::-1])
    assert_same_bits(run_prompt(runner, token_ids, (13,), pages), whole_prompt(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_neighbour_does_not_move_a_bit(name: str) -> None:
    """The prompt decodes its tail while another sequence prefills and decodes beside it, before or after it."""
    token_ids = expected(name).token_ids
    runner = make_runner(open_checkpoint(DATA / name))
    pages, other_pages = range(1, NUM_PAGES, 2), range(0, NUM_PAGES, 2)
    got = [run_prompt(runner, token_ids[:30], pages=pages)]
    for turn, start in enumerate(range(30, 40)):
        mine = Part(token_ids[start : start + 1], start, pages)
        other = Part(token_ids[2 * turn : 2 * turn + 2], 2 * turn, other_pages)
        is_first = turn % 2 == 0
        logits = runner.run(
            step_batch([mine, other] if is_first else [other, mine], PAGE_SIZE, runner.windows[1:])
        ).logits
        got.append(logits[:1] if is_first else logits[-1:])
    assert_same_bits(np.concatenate(got), whole_prompt(name))


@pytest.mark.parametrize("name", ["qwen2", "gemma2"])
def test_gguf_has_the_bits_of_safetensors(name: str) -> None:
    """Same rows, same rotary pairs, same orders of summation."""
    assert_same_bits(whole_prompt(f"{name}/model-f32.gguf"), whole_prompt(name))


@pytest.mark.parametrize("name", ["llama", "llama31"])
def test_llama_gguf_is_near_safetensors(name: str) -> None:
    """Its Q and K rows are permuted, so Q.K sums the same products in another order: near, not equal."""
    got, want = whole_prompt(f"{name}/model-f32.gguf"), whole_prompt(name)
    assert relative_error(got, want, expected(name).scale) <= 2e-6  # measured: 1.0e-6
    assert not np.array_equal(got, want)


@pytest.mark.parametrize("file", GGUF_MEASURED)
def test_gguf_logits_of_transformers(file: str) -> None:
    """A folder is among them: a Llama with biases everywhere, of which these are the only runs."""
    want = expected(file.split("/")[0])
    assert relative_error(whole_prompt(file), want.logits, want.scale) <= 2 * GGUF_MEASURED[file]
