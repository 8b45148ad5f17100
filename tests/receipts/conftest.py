"""A tiny model with random weights, and receipts of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from samebits import LLM

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / "engine"), str(TESTS / "loaders")]


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from random_tiny import write_random_tiny

    return write_random_tiny(tmp_path_factory.mktemp("receipts") / "random.gguf")


@pytest.fixture(scope="session")
def llm(model_path: Path) -> LLM:
    return LLM(model_path, context_len=512, max_batch_tokens=64)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key, folder = Ed25519PrivateKey.generate(), tmp_path_factory.mktemp("keys")
    private, public = folder / "key.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public
