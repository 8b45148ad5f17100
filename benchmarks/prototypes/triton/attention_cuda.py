"""Builds attention.cu with nvcc and launches it on torch tensors."""

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

Q_ORDERS = ["QA", "QB", "QC", "QCt", "QD"]
P_ORDERS = ["PA", "PC", "PD"]
TILE = 128


@cache
def library():
    target = Path(tempfile.mkdtemp()) / "attention.so"
    flags = ["-O3", "-fmad=false", "-gencode=arch=compute_90a,code=sm_90a", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run(["nvcc", *flags, Path(__file__).with_name("attention.cu"), "-o", target], check=True)
    return ctypes.CDLL(str(target))


def pointers(*tensors):
    return [ctypes.c_void_p(t.data_ptr()) for t in tensors]


def stream():
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)


def k_pass(x, order, scale, hkv):
    error = library().k_pass(
        Q_ORDERS.index(order),
        *pointers(x.q_by_d, x.k, x.pages, x.s, x.maxima),
        ctypes.c_float(scale),
        x.ctx,
        hkv,
        x.batch,
        stream(),
    )
    assert error == 0, error


def v_pass(x, order, words, tiles, hkv):
    error = library().v_pass(
        P_ORDERS.index(order),
        words,
        *pointers(x.s, x.maxima, x.v, x.pages, x.o, x.l),
        x.ctx,
        tiles,
        hkv,
        x.batch,
        stream(),
    )
    assert error == 0, error
