"""From a model's graph to one that a backend runs well: named passes, each graph -> graph, every bit kept."""

from samebits.passes.pipeline import PASSES, run_pipeline
from samebits.passes.place import Copy, Placement, place
from samebits.passes.plan_memory import MemoryPlan, check_plan, plan_memory
from samebits.passes.rules import Supports

__all__ = [
    "PASSES",
    "Copy",
    "MemoryPlan",
    "Placement",
    "Supports",
    "check_plan",
    "place",
    "plan_memory",
    "run_pipeline",
]
