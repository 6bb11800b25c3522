"""The key ring, and envelope encryption of texts in the store, logs, and objects in buckets.

    a key of the ring  wraps  a job's data key  seals  the data of the job
    (file or command)         (made at creation)       (each file with a derived key)

Everything is AES-256-GCM. Sealed data begins with a header: the name of the ring's key and the wrapped data key. So
each piece can be decrypted by itself, and only with that key.
"""

from turnout.vault.header import Header, is_sealed, is_sealed_text
from turnout.vault.ring import KeyGone, KeyRing, open_ring

__all__ = ["Header", "KeyGone", "KeyRing", "is_sealed", "is_sealed_text", "open_ring"]
