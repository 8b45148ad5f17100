"""Signatures: with a key from a file, over everything that a receipt says."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from samebits import LLM, SamplingParams
from samebits.core.errors import BadInput
from samebits.receipts.record import Receipt, from_json
from samebits.receipts.signing import is_signed_by, read_private_key, read_public_key, sign


@pytest.fixture(scope="module")
def receipt(llm: LLM) -> Receipt:
    found = llm.generate(["hi"], SamplingParams(max_tokens=2, receipt=True, seed=1))[0].receipt
    assert found is not None
    return found


def test_a_signature_holds_for_what_was_signed_and_for_nothing_else(receipt: Receipt, keys: tuple[Path, Path]) -> None:
    signed = sign(receipt, read_private_key(keys[0]))
    public = read_public_key(keys[1])
    again = from_json(signed.to_json())
    assert is_signed_by(again, public)
    assert not is_signed_by(receipt, public)
    assert not is_signed_by(replace(again, context_len=9), public)
    assert not is_signed_by(replace(again, sha256="0" * 64), public)
    assert not is_signed_by(replace(again, signature="0" * 128), public)


def test_openssl_makes_such_keys(receipt: Receipt, tmp_path: Path) -> None:
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    try:
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
        subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    except FileNotFoundError:
        pytest.skip("openssl is not here")
    assert is_signed_by(sign(receipt, read_private_key(private)), read_public_key(public))


def test_other_files_are_no_keys(keys: tuple[Path, Path], tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    other = tmp_path / "other.pem"
    other.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    for path in (keys[1], other, tmp_path / "absent.pem"):
        with pytest.raises(BadInput):
            read_private_key(path)
    for path in (keys[0], tmp_path / "absent.pem"):
        with pytest.raises(BadInput):
            read_public_key(path)
