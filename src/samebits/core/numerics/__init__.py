"""The portable arithmetic: the operations every reference is written in. Text: docs/numerics.md."""

NUMERICS_VERSION = 0  # stays 0 until the CPU and CUDA backends pass the portable tier at their speed bars
