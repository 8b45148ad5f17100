"""What loading a model costs, seen in a fresh process: seconds to load, to the first token, and resident memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path

from samebits.bench.measured_rows import CHUNK_TOKENS, SHORT_PROMPT
from samebits.bench.ours import Ours, Settings
from samebits.bench.results import Row
from samebits.core.collector import collector_paused
from samebits.core.errors import SamebitsError, Unavailable
from samebits.core.format import spec_bytes

STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Footprint:
    """Memory is above that of the interpreter with everything imported.

    first_token_seconds  from before the load to the logits after a prompt of `first_prompt` tokens
    resident_bytes       after a prompt that fills the cache of `context_tokens`
    peak_bytes           the most it ever was, loading included
    """

    load_seconds: float
    first_token_seconds: float
    first_prompt: int
    tokenizer_bytes: int
    resident_bytes: int
    peak_bytes: int
    file_bytes: int
    kv_bytes: int
    context_tokens: int

    @property
    def ratio(self) -> float:
        """Resident memory over what the file and the cache hold."""
        return self.resident_bytes / (self.file_bytes + self.kv_bytes)


def process_bytes(field: str) -> int:
    """This process's memory: "VmRSS" now, "VmHWM" the most it was. Where the system does not tell, the latter."""
    if STATUS.exists():
        fields = dict(line.split(":", 1) for line in STATUS.read_text(encoding="utf-8").splitlines())
        return int(fields[field].split()[0]) * 1024
    usage = import_module("resource")  # not on every system
    return int(usage.getrusage(usage.RUSAGE_SELF).ru_maxrss) * (1 if sys.platform == "darwin" else 1024)


def resident_bytes() -> int:
    return process_bytes("VmRSS")


def file_bytes(path: Path) -> int:
    """The size of a model file, or of all weights of a folder."""
    files = path.glob("*.safetensors") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def measure_here(settings: Settings) -> Footprint:
    """The footprint of a model that this process has not loaded yet."""
    settings.device()  # loads the backend's own code, which is no part of the model
    before = resident_bytes()
    started = time.perf_counter()
    with collector_paused():  # in the order of `LLM`, and as there nothing else is kept
        checkpoint = settings.open()
        context = Row("prefill", min(CHUNK_TOKENS, checkpoint.config.context_len))
        short = Row("prefill", min(SHORT_PROMPT, context.num_tokens))
        without_tokenizer = resident_bytes()
        tokenizer = checkpoint.tokenizer()
        tokenizer_bytes = resident_bytes() - without_tokenizer
        ours = Ours(settings, checkpoint, [context])
    path = checkpoint.path
    del checkpoint
    ours.runner.backend.trim()
    load_seconds = time.perf_counter() - started
    ours.seconds(short, "")
    first_token_seconds = time.perf_counter() - started
    ours.seconds(context, "")
    graph, resident = ours.runner.graph, resident_bytes() - before
    del tokenizer  # a user's process holds it all the while
    caches = [value.spec for value in graph.inputs if graph.kinds.get(value.name) == "cache"]
    return Footprint(
        load_seconds=load_seconds,
        first_token_seconds=first_token_seconds,
        first_prompt=short.num_tokens,
        tokenizer_bytes=tokenizer_bytes,
        resident_bytes=resident,
        peak_bytes=process_bytes("VmHWM") - before,
        file_bytes=file_bytes(path),
        kv_bytes=sum(map(spec_bytes, caches)),
        context_tokens=context.num_tokens,
    )


def measure(settings: Settings) -> Footprint:
    """The footprint of a model, from a process that does nothing else."""
    command = [sys.executable, "-m", "samebits.bench.footprint", json.dumps(asdict(settings))]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"footprint: {(done.stderr.strip().splitlines() or ['the process ended'])[-1]}")
    return Footprint(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    try:
        print(json.dumps(asdict(measure_here(Settings(**json.loads(sys.argv[1]))))))
    except SamebitsError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
