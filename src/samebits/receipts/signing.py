"""Ed25519 signatures of receipts, with keys from PEM files as openssl writes them. Needs the extra `receipts`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.core.errors import BadInput, Unavailable
from samebits.core.installing import install_command
from samebits.loaders.source import read_bounded
from samebits.receipts.record import Receipt

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

MAX_KEY_BYTES = 1 << 16


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """A key to sign with, without a password; BadInput for a file that holds none."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_bounded(path, MAX_KEY_BYTES)
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _no_key(path, "no key that can be read", "private") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path, "a key of another kind", "private")
    return key


def read_public_key(path: Path) -> Ed25519PublicKey:
    """A key to check with; BadInput for a file that holds none."""
    _require()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    data = read_bounded(path, MAX_KEY_BYTES)
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise _no_key(path, "no key that can be read", "public") from None
    if not isinstance(key, Ed25519PublicKey):
        raise _no_key(path, "a key of another kind", "public")
    return key


def sign(receipt: Receipt, key: Ed25519PrivateKey) -> Receipt:
    """The receipt with its own SHA-256 and a signature."""
    sealed = replace(receipt, sha256=receipt.computed_sha256())
    return replace(sealed, signature=key.sign(sealed.signed_bytes()).hex())


def is_signed_by(receipt: Receipt, key: Ed25519PublicKey) -> bool:
    """Whether the receipt, as it is now, was signed with that key's private half."""
    from cryptography.exceptions import InvalidSignature

    if receipt.signature is None:
        return False
    try:
        key.verify(bytes.fromhex(receipt.signature), receipt.signed_bytes())
    except InvalidSignature:
        return False
    return True


def _require() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise Unavailable(f"signatures need cryptography: {install_command('receipts')}") from None


def _no_key(path: Path, given: str, which: str) -> BadInput:
    return BadInput(str(path), f"{which} key", given, f"an Ed25519 {which} key in PEM, as openssl writes it")
