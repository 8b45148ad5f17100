"""Which tokens of which sequences the next step computes. Ids and counts only: no tensors, no clock."""

from samebits.scheduler.policy import Policy
from samebits.scheduler.request import PromptRequest, Sequence
from samebits.scheduler.scheduler import Scheduler
from samebits.scheduler.step import StepPlan

__all__ = ["Policy", "PromptRequest", "Scheduler", "Sequence", "StepPlan"]
