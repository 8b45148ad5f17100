"""Proof that a backend is right: values, bits, invariance and memory, case by case."""
