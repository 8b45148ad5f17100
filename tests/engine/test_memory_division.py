"""How memory is divided: what is promised of any model, device and settings, and what happens where it falls short."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from small_device import SmallDevice, device

from samebits import LLM
from samebits.backends.discovery import Found, get
from samebits.backends.interface import Backend, Memory
from samebits.core.errors import BadInput, OutOfMemory
from samebits.core.shapes import TensorSpec
from samebits.engine.settings import EngineOptions, EngineSettings, read_memory, settings_from, stated_settings
from samebits.engine.sizes import Division, divide, policy_for, rounded_down
from samebits.models.checkpoint import FileCheckpoint, build_step, open_checkpoint

DATA = Path(__file__).parents[1] / "models" / "data"
MODELS = ("llama", "gemma2", "gpt_oss", "deepseek3", "qwen3next", "mamba2", "falcon_h1", "phi3")
MIB = 1 << 20
MEMORIES = st.integers(0, 4096).map(lambda n: n * MIB // 16)


@cache
def checkpoint(name: str) -> FileCheckpoint:
    return open_checkpoint(next(iter(sorted((DATA / name).glob("*.gguf"))), DATA / name))


class Described(SmallDevice):
    """A device that is asked for its memory alone."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self._memory = memory

    def memory(self) -> Memory:
        return self._memory


def found_with(memory: Memory) -> Found:
    backend: Backend = Described(memory)
    return Found("cpu", "a test", backend, get("cpu").caps)


def divided(name: str, available: Memory, **options: Any) -> Division:
    chosen, found = EngineSettings(**({"memory": 0.9} | options)), found_with(available)
    return divide(checkpoint(name), found, chosen, policy_for(chosen, found))


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "memory": st.one_of(st.floats(0.01, 1), st.integers(1, 256).map(lambda n: f"{n}M")),
        "max_sequences": st.integers(1, 64),
        "k_format": st.sampled_from(["f16", "bf16", "f32"]),
        "context_len": st.integers(1, 64),
        "num_pages": st.integers(2, 64),
        "max_batch_tokens": st.sampled_from([64, 512]),
    },
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
@given(st.sampled_from(MODELS), MEMORIES, st.integers(0, 16), st.booleans(), OPTIONS)
def test_no_more_than_the_fraction_is_taken(
    name: str, total: int, sixteenths: int, is_host: bool, options: dict[str, Any]
) -> None:
    memory = Memory(total, total * sixteenths // 16, is_host)
    assume(memory.total_bytes and memory.free_bytes)
    try:
        division = divided(name, memory, **options)
    except OutOfMemory:
        return
    limits, stated = division.limits, read_memory("test", options.get("memory", 0.9))
    used = division.weight_bytes + division.workspace_bytes + division.page_bytes + division.slot_bytes
    assert used <= division.budget_bytes
    assert division.budget_bytes <= (stated if isinstance(stated, int) else stated * memory.total_bytes)
    if not (is_host and isinstance(stated, int)):
        assert division.budget_bytes <= memory.free_bytes
    assert limits.num_pages >= 2
    assert division.context_len >= 1
    if "num_pages" in options:
        assert limits.num_pages == options["num_pages"]
    else:
        pages_each = -(-(options.get("context_len") or checkpoint(name).config.context_len) // limits.page_size)
        assert limits.num_pages <= 1 + limits.max_sequences * pages_each
        assert division.context_len >= options.get("context_len", 1)
    if is_host and isinstance(stated, float) and "num_pages" not in options:
        assert division.page_bytes <= 0.25 * stated / 0.9 * memory.free_bytes
    assert limits.max_sequences <= options.get("max_sequences", 32)


@settings(max_examples=25)
@given(st.sampled_from(MODELS), MEMORIES, MEMORIES, st.booleans())
def test_more_memory_gives_no_less(name: str, some: int, more: int, is_host: bool) -> None:
    def sizes(num_bytes: int, **options: Any) -> tuple[int, int]:
        try:
            limits = divided(name, Memory(num_bytes, num_bytes, is_host), **options).limits
        except OutOfMemory:
            return 0, 0
        return limits.max_sequences, limits.num_pages

    assume(some and more)
    small, large = sorted((some, more))
    assert sizes(small)[0] <= sizes(large)[0]
    assert sizes(small, max_sequences=4)[1] <= sizes(large, max_sequences=4)[1]


@pytest.mark.parametrize("name", MODELS)
def test_pages_and_states_take_what_the_step_declares(name: str) -> None:
    division = divided(name, Memory(64 * MIB, 64 * MIB))
    graph = build_step(checkpoint(name), division.limits).graph
    specs = [v.spec for v in graph.inputs if graph.kinds.get(v.name) == "cache"]
    assert division.page_bytes + division.slot_bytes == sum(map(get("cpu").backend.stored_bytes, specs))
    ropes = checkpoint(name).config.ropes
    weights = [v.spec for v in graph.inputs if graph.kinds.get(v.name) == "weight"]
    assert ropes or name in ("mamba2", "falcon_h1")
    assert division.weight_bytes == sum(map(get("cpu").backend.stored_bytes, weights))


def test_a_longrope_keeps_its_angles_where_memory_is_short() -> None:
    config = checkpoint("phi3").config
    assert config.switch_lens
    rich = divided("phi3", Memory(256 * MIB, 256 * MIB))
    fixed = rich.weight_bytes + rich.workspace_bytes
    limit = f"{fixed / 2**10 + 4:.0f}K"
    poor = divided("phi3", Memory(1 << 30, 1 << 30), memory=limit, max_sequences=1)
    assert poor.context_len <= min(config.switch_lens) < config.context_len
    assert poor.limits.max_positions == config.context_len == rich.limits.max_positions


def test_a_note_states_the_context_that_a_longrope_has() -> None:
    rich = divided("phi3", Memory(256 * MIB, 256 * MIB))
    fixed = rich.weight_bytes + rich.workspace_bytes
    for more in range(4, 40, 3):
        poor = divided("phi3", Memory(1 << 30, 1 << 30), memory=f"{fixed / 2**10 + more:.0f}K", max_sequences=1)
        if poor.context_len < rich.context_len:
            assert f"lowered from 256 to {poor.context_len} tokens" in poor.notes[0]


@pytest.mark.parametrize("is_host", [False, True])
def test_a_device_without_free_memory_holds_no_model(is_host: bool) -> None:
    with pytest.raises(OutOfMemory, match=r"no page fits: .*\(0 KiB are free\)"):
        divided("llama", Memory(64 * MIB, 0, is_host))


def test_a_stated_context_is_kept_after_memory_has_run_out() -> None:
    division = divided("llama", Memory(64 * MIB, 64 * MIB), context_len=64, max_sequences=2)
    while division.limits.num_pages > 5:
        division = division.with_fewer_pages()
    assert division.context_len == 64
    with pytest.raises(OutOfMemory, match="5 pages of 16 tokens do not fit into memory"):
        division.with_fewer_pages()


def test_an_error_names_the_settings_that_take_the_memory() -> None:
    with pytest.raises(OutOfMemory, match=r"states of 4096 sequences .* fewer --max-sequences or a larger --memory"):
        divided("qwen3next", Memory(64 * MIB, 64 * MIB), max_sequences=4096)
    with pytest.raises(OutOfMemory, match="fewer --max-batch-tokens or a larger --memory"):
        divided("llama", Memory(64 * MIB, 64 * MIB), max_batch_tokens=1 << 20)


def test_memory_that_the_system_refuses_is_one_line() -> None:
    with pytest.raises(OutOfMemory, match="a tensor of 1,099,511,627,776 MiB does not fit into memory"):
        get("cpu").backend.alloc(TensorSpec((1 << 60,), "i8"))


def test_a_tensor_is_no_larger_than_kernels_can_read() -> None:
    memory = Memory(256 * MIB, 256 * MIB, max_tensor_bytes=64 * 1024)
    limits = divided("llama", memory).limits
    step = build_step(checkpoint("llama"), limits)
    caches = [v.spec for v in step.graph.inputs if step.graph.kinds.get(v.name) == "cache"]
    assert max(map(get("cpu").backend.stored_bytes, caches)) <= 64 * 1024
    assert limits.num_pages < divided("llama", replace(memory, max_tensor_bytes=None)).limits.num_pages


@given(st.integers(1, 1 << 24))
def test_lowered_contexts_are_round(num_tokens: int) -> None:
    found = rounded_down(num_tokens)
    assert num_tokens / 2 < found <= num_tokens
    assert found & (found - 1) == 0 or (found // 3) & (found // 3 - 1) == 0


def test_a_setting_that_cannot_be_kept_is_one_line(random_tiny: Path) -> None:
    for options, expected in (
        ({"num_pages": 1 << 20}, "num_pages 1,048,576 needs 4.0 GiB; "),
        ({"context_len": 4096}, "context_len is 4096, but must be at most 2048, the model's own"),
        ({"context_len": 2048, "memory": "1.5M"}, "context_len 2,048 needs "),
        ({"memory": "100K"}, "no page fits: weights take "),
    ):
        with pytest.raises((BadInput, OutOfMemory)) as raised:
            LLM(random_tiny, **options)
        assert expected in str(raised.value)
        assert "\n" not in str(raised.value)


def answers(llm: LLM) -> list[tuple[int, ...]]:
    params = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
    return [tuple(a.token_ids) for a in llm.generate(["one", "two", "three"], params)]


def test_a_context_that_does_not_fit_is_lowered_and_said(random_tiny: Path, caplog: pytest.LogCaptureFixture) -> None:
    with LLM(random_tiny, memory="1.5M") as llm:
        assert llm.max_len == llm.division.context_len < 2048
        assert "context lowered from 2,048 to" in caplog.text
        few = answers(llm)
    with LLM(random_tiny) as llm:
        assert llm.max_len == 2048
        assert llm.division.notes == ()
        assert answers(llm) == few


@pytest.mark.parametrize("case", ["caches", "captured steps"])
def test_out_of_memory_lowers_the_pages(random_tiny: Path, case: str, caplog: pytest.LogCaptureFixture) -> None:
    real, kept = (4 * MIB, 0) if case == "caches" else (16 * MIB, 12 * MIB)
    with device(64 * MIB, real, kept) as name, LLM(random_tiny, backend=name) as llm:
        assert SmallDevice.used_bytes <= real - kept
        assert "out of memory: pages lowered from " in caplog.text
        assert llm.runner.limits == llm.division.limits
        assert llm.engine.scheduler.pages.pool.num_pages == llm.runner.limits.num_pages
        lowered = answers(llm)
    with LLM(random_tiny) as llm:
        assert answers(llm) == lowered


def test_the_pages_of_a_draft_model_are_freed_before_others_are_allocated(random_tiny: Path) -> None:
    drafted = {"speculate": f"draft:{random_tiny}"}
    with device(64 * MIB, 36 * MIB, 8 * MIB) as name, LLM(random_tiny, backend=name, **drafted) as llm:
        assert llm.division.notes
        assert SmallDevice.used_bytes < 28 * MIB
        lowered = answers(llm)
    with LLM(random_tiny) as llm:
        assert answers(llm) == lowered


def test_out_of_memory_with_stated_pages_is_an_error(random_tiny: Path) -> None:
    with device(64 * MIB, 1 * MIB) as name, pytest.raises(OutOfMemory, match="1000 pages of 16 tokens do not fit"):
        LLM(random_tiny, backend=name, num_pages=1000)


def test_pages_are_lowered_where_weights_take_more_than_their_file(random_tiny: Path) -> None:
    with device(64 * MIB) as name:
        division = LLM(random_tiny, backend=name).division
    needed = division.memory.free_bytes - division.budget_bytes + division.workspace_bytes
    assert division.with_free(needed + division.page_bytes) is division
    fewer = division.with_free(needed + division.page_bytes // 2)
    assert 0.4 * division.page_bytes < fewer.page_bytes <= division.page_bytes // 2
    assert fewer.notes[0].startswith("weights take more than their file: pages lowered from 4,097 to ")


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="it reads Linux's /proc")
def test_pages_are_untouched_until_they_are_used(random_tiny: Path) -> None:
    with LLM(random_tiny) as llm:
        answers(llm)  # whatever is made with the first model
    before = resident_bytes()
    with LLM(random_tiny, memory="448M", num_pages=90_000) as llm:
        answers(llm)
        assert llm.division.page_bytes > 180 * MIB
        assert resident_bytes() - before < 48 * MIB


def test_settings_are_stated_once() -> None:
    names = list(stated_settings())
    assert set(EngineOptions.__annotations__) == {*names, "max_model_len"}
    assert settings_from({"max_model_len": 7}) == EngineSettings(context_len=7)
    with pytest.raises(BadInput, match="are both given: give one of them"):
        settings_from({"max_model_len": 7, "context_len": 7})
    with pytest.raises(TypeError, match="unexpected keyword argument 'contextlen'; known: backend, "):
        settings_from({"contextlen": 7})


@pytest.mark.parametrize(
    ("given", "expected"),
    [("12G", 12 << 30), ("1.5 MiB", 3 << 19), ("512kb", 1 << 19), ("0.5", 0.5), (1, 1.0), (0.9, 0.9)],
)
def test_memory_is_a_fraction_or_a_size(given: Any, expected: float) -> None:
    found = read_memory("test", given)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "G",
        "2",
        "-1",
        "0",
        1.5,
        0,
        -0.1,
        True,
        "nan",
        float("nan"),
        "9 parsecs",
        [1],
        "0G",
        "0.0001K",
        "9" * 400 + "G",
    ],
)
def test_memory_is_nothing_else(given: Any) -> None:
    with pytest.raises(
        BadInput, match=r"memory is .*, but must be a fraction above 0 and up to 1, or a size such as 12G"
    ):
        EngineSettings(memory=given)
