"""Keys and signatures, as scripts import them from Horovod."""

from __future__ import annotations

import hashlib
import hmac
import secrets

__all__ = ["DIGEST_LENGTH", "HOROVOD_SECRET_KEY", "SECRET_LENGTH", "check_digest", "compute_digest", "make_secret_key"]

SECRET_LENGTH = DIGEST_LENGTH = 32  # bytes
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"


def make_secret_key() -> bytes:
    """SECRET_LENGTH random bytes."""
    return secrets.token_bytes(SECRET_LENGTH)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """HMAC-SHA-256: DIGEST_LENGTH bytes."""
    return hmac.digest(key, message, hashlib.sha256)


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Returns whether the digest belongs to the message. Takes constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
