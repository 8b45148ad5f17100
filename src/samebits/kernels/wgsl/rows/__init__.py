"""Kernels that go row by row: norms, elementwise."""
