"""The peers' sides with a stand-in for their package: what they are loaded with, and where they refuse to compute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from samebits.bench.peers import llama_cpp_side, transformers_side


class LlamaCpp(SimpleNamespace):
    """The part of llama-cpp-python's low-level calls that loads a model."""

    def __init__(self, has_gpu: bool) -> None:
        super().__init__(
            __version__="0", llama_log_callback=lambda call: call, llama_supports_gpu_offload=lambda: has_gpu
        )
        self.llama_log_set = self.llama_backend_init = lambda *given: None
        self.llama_model_default_params = lambda: SimpleNamespace(n_gpu_layers=-1)
        self.llama_print_system_info = lambda: b"AVX2 = 1"
        self.num_layers: list[int] = []

    def llama_model_load_from_file(self, path: bytes, params: Any) -> object:
        self.num_layers.append(params.n_gpu_layers)
        return object()


@pytest.mark.parametrize(("on_gpu", "num_layers"), [(False, 0), (True, 99)])
def test_llama_cpp_computes_where_we_do(monkeypatch: pytest.MonkeyPatch, on_gpu: bool, num_layers: int) -> None:
    for has_gpu in (False, True):
        package = LlamaCpp(has_gpu)
        monkeypatch.setattr(llama_cpp_side, "import_module", lambda name, package=package: package)
        peer = llama_cpp_side.Peer()
        if has_gpu == on_gpu:
            peer.load("m.gguf", 2, {"vocab_size": 8}, on_gpu)
            assert package.num_layers == [num_layers]
        else:
            with pytest.raises(RuntimeError, match=r"this build computes on .*, and samebits on"):
                peer.load("m.gguf", 2, {"vocab_size": 8}, on_gpu)
            assert package.num_layers == []


def test_transformers_is_no_peer_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_side, "import_module", lambda name: SimpleNamespace())
    with pytest.raises(RuntimeError, match="on the CPU alone, and samebits runs on a GPU"):
        transformers_side.Peer().load("m.gguf", 2, {}, on_gpu=True)
