"""How the weights of a Hugging Face folder are quantized, from what its JSON files say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from samebits.loaders.fields import Fields, shown
from samebits.loaders.source import read_json

QUANT_FILE = "hf_quant_config.json"  # ModelOpt's own; newer versions repeat it in config.json
MAX_QUANT_BYTES = 4 << 20
ALGORITHMS = ("NVFP4", "W4A16_NVFP4")  # they differ in activations, which are int8 blocks here
PACK_FORMAT = "nvfp4-pack-quantized"
GROUP = 16
NEEDED = "f32, f16, bf16, MXFP4 or NVFP4 weights (ModelOpt, compressed-tensors), or a GGUF file"


@dataclass(frozen=True)
class Nvfp4Layout:
    """How the tensors of an NVFP4 layer are called, and whether its scale divides instead of multiplying."""

    weight: str
    scale: str
    divides: bool


Layout = Nvfp4Layout | Literal["mxfp4"]
MODELOPT = Nvfp4Layout("weight", "weight_scale_2", divides=False)
COMPRESSED = Nvfp4Layout("weight_packed", "weight_global_scale", divides=True)


def quantization_of(config: Mapping[str, Any], where: str) -> Layout | None:
    """What a config.json says: None for plain weights, BadInput for a quantization that is not MXFP4 or NVFP4.

    Which layers are left out is seen by their tensors, so lists of names are not read.
    """
    fields = Fields(config, where)
    if not fields.has("quantization_config"):
        return None
    quant = fields.mapping("quantization_config")
    method = quant.text("quant_method", "nothing")
    if method == "compressed-tensors":
        return _compressed(quant)
    if method in ("modelopt", "modelopt_fp4"):
        return _modelopt(quant)
    if method == "mxfp4":
        return "mxfp4"
    raise fields.fail("quantization_config", f"quant_method {method!r}", NEEDED)


def refuse_mlx(config: Fields) -> None:
    """Raise BadInput for a config.json as MLX writes it beside weights that it has quantized."""
    if (stated := config.get("quantization")) is not None:
        raise config.fail("quantization", shown(stated), f"weights that MLX has not quantized: {NEEDED}")


def quantization_in(folder: Path) -> Nvfp4Layout | None:
    """The same from ModelOpt's own file, where the folder has one."""
    path = folder / QUANT_FILE
    if not path.is_file():
        return None
    return _modelopt(Fields(read_json(path, MAX_QUANT_BYTES), str(path)).mapping("quantization"))


def _modelopt(quant: Fields) -> Nvfp4Layout:
    algorithm = quant.text("quant_algo", "nothing")
    if algorithm not in ALGORITHMS:
        raise quant.fail("quant_algo", repr(algorithm), f"one of {', '.join(ALGORITHMS)}")
    quant.integer("group_size", GROUP, GROUP, GROUP)
    return MODELOPT


def _compressed(quant: Fields) -> Nvfp4Layout:
    if (fmt := quant.text("format", "nothing")) != PACK_FORMAT:
        raise quant.fail("format", repr(fmt), PACK_FORMAT)
    if quant.mapping("transform_config").mapping("config_groups").values:
        raise quant.fail("transform_config", "rotations of activations", "none: they are not supported")
    groups = quant.mapping("config_groups")
    for name in groups.values:
        weights = groups.mapping(name).mapping("weights")
        weights.integer("num_bits", 4, 4, 4)
        weights.integer("group_size", GROUP, GROUP, GROUP)
        if (kind := weights.text("type", "float")) != "float":
            raise weights.fail("type", repr(kind), "float")
        if not weights.flag("symmetric", True):
            raise weights.fail("symmetric", "false", "true: offsets of weights are not supported")
    return COMPRESSED
