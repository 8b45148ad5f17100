"""What a verification run speaks of: tasks, findings, results."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

GRAPH = "graph"  # what graphs of several nodes are listed under, in place of an op
# before a case's name: its executable runs several times, or very often, or on the end of a large cache
RERUNS, SOAK, FAR = "reruns:", "soak:", "far:"
Status = Literal["pass", "fail", "unsupported", "unfinished"]

# Every check, in the order in which a failure is blamed: the first that fails names the defect.
CHECKS = {
    "crash": "the worker process died",
    "error": "the backend raised where it should compute",
    "refused": "the backend refused a program although it has a kernel for every node",
    "guard": "memory before or after a buffer was written",
    "input": "an input that is not updated in place was changed",
    "unwritten": "a part of the output was never written",
    "nan": "NaN where the reference has a number",
    "values": "outside the error bounds of the op",
    "reruns": "a run of an executable that had run before gave other values",
    "soak": "one of many equal launches gave other values",
    "graph": "nodes that run together gave other values than one by one",
    "run-to-run": "two runs on equal inputs gave other bits",
    "threads": "another number of threads gave other bits",
    "batch-size": "another batch size gave other bits for the same row",
    "neighbours": "other values in the neighbouring rows gave other bits",
    "order": "another order of the rows gave other bits",
    "split": "a prompt in two chunks gave other bits",
    "pages": "pages elsewhere gave other bits",
    "page-size": "another page size gave other bits",
    "contiguous": "a contiguous cache gave other bits than a paged one",
    "layout": "another cache layout gave other bits",
    "fusion": "the unfused ops gave other bits",
    "flush": "subnormals flushed to zero gave other bits",
    "bits": "within bounds, but not the reference's bits",
}


def is_drawn(case_id: str) -> bool:
    """Whether a case's name is a row of the op's space."""
    return "=" in case_id


@dataclass(frozen=True)
class Task:
    """One case of one op, to be proven at some tiers; or a graph, see GRAPH, RERUNS and SOAK."""

    backend: str
    op: str
    case: str
    tiers: tuple[str, ...]
    seed: int = 0
    dims: dict[str, Any] = field(default_factory=dict)  # a case made from sizes on the command line
    is_long: bool = False  # soak longer, as a full run does

    @property
    def replay(self) -> str:
        """The command that runs exactly this again."""
        sizes = "".join(f" --{name} {value}" for name, value in self.dims.items())
        chosen = sizes or f" --case {self.case}"
        seed = f" --seed {self.seed}" if self.seed else ""
        length = " --full" if self.is_long else ""
        return f"samebits verify --backend {self.backend} --op {self.op}{chosen}{seed}{length}"


@dataclass(frozen=True)
class Finding:
    """A check that failed, and where."""

    check: str
    where: str


@dataclass(frozen=True)
class Result:
    """The verdict on one case at one tier. `reason` is one line; `findings` are all checks that failed.

    checks        the checks that were made at this tier, in the order of CHECKS
    not_compared  comparisons that the backend does not support, with its reasons
    """

    op: str
    case: str
    tier: str
    status: Status
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    kernel: str = ""
    seconds: float = 0.0
    replay: str = ""
    checks: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def one_line(error: Exception) -> str:
    """What an exception of a backend under test becomes in a report."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
