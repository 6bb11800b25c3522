"""The durable record of jobs: one schema on SQLite or PostgreSQL, one writer, group commit."""

from turnout.store.driver import StoreError, Unanswered
from turnout.store.store import Batch, LiveJob, Store

__all__ = ["Batch", "LiveJob", "Store", "StoreError", "Unanswered"]
