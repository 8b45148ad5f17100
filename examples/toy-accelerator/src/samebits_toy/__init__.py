"""A pretend tile accelerator as a Samebits backend. Start reading at backend.py."""

from samebits_toy.backend import ToyBackend

__all__ = ["ToyBackend"]
