"""What every transfer of an order shares."""

from typing import TYPE_CHECKING, NamedTuple

from turnout.runner.stager.budget import TransferBudget
from turnout.runner.stager.progress import ProgressCounter
from turnout.runner.stager.retry import RetryPolicy

if TYPE_CHECKING:
    from turnout.storage.remote.store import ObjectStore


class TransferContext(NamedTuple):
    store: "ObjectStore"
    budget: TransferBudget
    retries: RetryPolicy
    progress: ProgressCounter
