"""`samebits convert` and `quantize`: a model as a GGUF file of its own."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from samebits.cli import flags
from samebits.cli.model_options import progress_bar
from samebits.cli.output import AsJson
from samebits.convert.quantize import converted, quantized
from samebits.convert.types import FILE_TYPES, PLAIN, check_type
from samebits.convert.writing import OutFile, write
from samebits.core.errors import BadInput
from samebits.debug.text import size_text
from samebits.loaders.obtain import obtain

SOURCE = flags.Argument(help="The model: a short name, a path, hf:owner/repo or an address.")
OUT = flags.Argument(help="The GGUF file to write.")
FORCE = flags.Option(False, "--force", help="Replace the file if it exists.")


def convert(
    source: str = SOURCE,
    out: Path = OUT,
    kind: str = flags.Option(
        None, "--type", help="The format of matrices, f32, f16 or bf16; that of the folder if absent."
    ),
    force: bool = FORCE,
    as_json: AsJson = False,
) -> None:
    """Write the GGUF file of a folder of safetensors: tensors, configuration, tokenizer and chat template."""
    if kind not in (None, *PLAIN):
        needed = f"{', '.join(PLAIN[:-1])} or {PLAIN[-1]}; `samebits quantize` writes others"
        raise BadInput("convert", "--type", repr(kind[:40]), needed)
    _save(converted(obtain(source), kind), out, force, as_json)


def quantize(
    source: str = SOURCE,
    out: Path = OUT,
    kind: str = flags.Option("q4_k", "--type", help=f"The format of matrices: {', '.join(FILE_TYPES)}."),
    requantize: bool = flags.Option(False, "--requantize", help="Take a file that is quantized already."),
    force: bool = FORCE,
    as_json: AsJson = False,
) -> None:
    """Write a model with its matrices in another format, as a GGUF file; norms, embedding and head keep more bits."""
    asked = check_type(kind)
    _save(quantized(obtain(source), asked, requantize), out, force, as_json)


def _save(file: OutFile, out: Path, force: bool, as_json: bool) -> None:
    with progress_bar(Console(stderr=True)) as progress:
        bar = progress.add_task("writing", total=None)

        def report(name: str, done: int, total: int) -> None:
            progress.update(bar, description=name, completed=done, total=total)

        write(file, out, report, force)
    counts: dict[str, int] = {}
    for tensor in file.tensors:
        counts[tensor.format] = counts.get(tensor.format, 0) + 1
    if as_json:
        flags.echo(json.dumps({"path": str(out), "bytes": out.stat().st_size, "tensors": counts}))
    else:
        shown = ", ".join(f"{count} {name}" for name, count in counts.items())
        flags.echo(f"{out}: {size_text(out.stat().st_size)}, {shown}")
