"""Makes tests/convert/data/llama_cpp.json: what llama.cpp makes of our tensors, and what it answers to our files.

    pip install llama-cpp-python==0.3.36, then
    PYTHONPATH=src:tests/convert python tools/ask_llama_cpp.py LIBGGML_BASE

Of tensors: the SHA-256 and the error of ggml's own bytes, per format. Of the files that `samebits convert` makes of the
tiny folders: their SHA-256, and the likeliest token at every position, as llama.cpp computes them in float32.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from convert_samples import FACTS, FOLDERS, MODELS, convert_sample, samples

from samebits.convert.gguf_bytes import NUMBERS
from samebits.core.format import FORMATS, BlockFormat


def quantized(library: Any, x: np.ndarray, fmt: BlockFormat) -> np.ndarray:
    """ggml's bytes of a tensor."""
    out = np.empty((len(x), fmt.row_bytes(x.shape[1])), np.uint8)
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    arguments = (ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data))
    sizes = (ctypes.c_int64(0), ctypes.c_int64(len(x)), ctypes.c_int64(x.shape[1]))
    library.ggml_quantize_init(NUMBERS[fmt.name])
    library.ggml_quantize_chunk(NUMBERS[fmt.name], *arguments, *sizes, None)
    return out


def of_tensors(library: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in NUMBERS:
        fmt = FORMATS[name]
        if not isinstance(fmt, BlockFormat) or name == "mxfp4":
            continue
        for kind, x in samples().items():
            data = quantized(library, x, fmt)
            error = np.sqrt(np.mean((fmt.decode(data, np.float32(1)).astype(np.float64) - x) ** 2))
            digest = hashlib.sha256(data.tobytes()).hexdigest()
            found.setdefault(name, {})[kind] = {"sha256": digest, "rms_error": float(f"{error:.6g}")}
    return found


def likeliest(path: Path, token_ids: np.ndarray) -> list[int]:
    """The likeliest token at every position."""
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
    if not model:
        raise ValueError(f"{path.name}: llama.cpp does not load it")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 128
    params.type_k = params.type_v = params.flash_attn_type = 0  # float32, plain attention
    context = llama_cpp.llama_init_from_model(model, params)
    batch = llama_cpp.llama_batch_init(len(token_ids), 0, 1)
    batch.n_tokens = len(token_ids)
    for i, token in enumerate(token_ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = int(token), i, 1, 1
        batch.seq_id[i][0] = 0
    if llama_cpp.llama_decode(context, batch):
        raise ValueError(f"{path.name}: llama.cpp does not run it")
    num_ids = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    rows = [
        np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (num_ids,)) for i in range(len(token_ids))
    ]
    return [int(row.argmax()) for row in rows]


def of_files() -> dict[str, Any]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FOLDERS:
            _, path = convert_sample(name, Path(folder))
            with np.load(MODELS / name / "expected.npz") as expected:
                tokens = likeliest(path, expected["token_ids"])
            found[name] = {
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "tokens": " ".join(map(str, tokens)),
            }
    return found


def main() -> None:
    version = f"llama-cpp-python {llama_cpp.__version__}"
    facts = {"made with": version, "tensors": of_tensors(ctypes.CDLL(sys.argv[1])), "files": of_files()}
    FACTS.parent.mkdir(exist_ok=True)
    FACTS.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
