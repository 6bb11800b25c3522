"""The durable record of jobs: one schema on SQLite or PostgreSQL, one writer, group commit."""

from turnout.store.driver import StoreError, Unanswered
from turnout.store.keys import StoredKey
from turnout.store.rows import LONGEST_LABEL, storable
from turnout.store.store import Batch, LiveRecord, Store
from turnout.store.unreadable import Unreadable

__all__ = [
    "LONGEST_LABEL",
    "Batch",
    "LiveRecord",
    "Store",
    "StoreError",
    "StoredKey",
    "Unanswered",
    "Unreadable",
    "storable",
]
