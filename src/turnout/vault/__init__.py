"""The key ring, and what is kept under its keys: texts in the store, logs, objects in buckets.

    a key of the ring  wraps  a job's data key  seals  what the job leaves behind
    (file or command)         (made at its create)     (each file with a key derived for it alone)

All of it is AES-256-GCM. The data key, wrapped, and the name of the key that wraps it stand at the beginning of all
that is sealed, so that each piece says by itself what it takes to open it. Without that key nothing can.
"""

from turnout.vault.header import Header, is_sealed, is_sealed_text
from turnout.vault.ring import KeyGone, KeyRing

__all__ = ["Header", "KeyGone", "KeyRing", "is_sealed", "is_sealed_text"]
