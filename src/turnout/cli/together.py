"""Several things at a time. The first that fails ends the rest, and is what is told."""

import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from types import TracebackType

AT_A_TIME = 8


class Together:
    """As a context: leaving it waits for all that was begun, or gives up what is not done yet after a failure."""

    def __init__(self, given_up: threading.Event) -> None:
        """`given_up` is set when the rest is to be ended."""
        self._given_up = given_up
        self._pool = ThreadPoolExecutor(AT_A_TIME)
        self._under_way: set[Future[None]] = set()

    def __enter__(self) -> "Together":
        return self

    def do(self, thing: Callable[[], None]) -> None:
        """Waits while enough is under way, so that a million things are not all remembered. Raises what failed."""
        if len(self._under_way) >= 4 * AT_A_TIME:
            done, self._under_way = wait(self._under_way, return_when=FIRST_COMPLETED)
            for one in done:
                one.result()
        self._under_way.add(self._pool.submit(thing))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            while kind is None and self._under_way:
                done, self._under_way = wait(self._under_way, return_when=FIRST_COMPLETED)
                for one in done:
                    one.result()
        finally:
            self._given_up.set()
            self._pool.shutdown(cancel_futures=True)
