"""An event loop whose clock moves only when every task waits: hours pass in milliseconds."""

import asyncio
import selectors


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.elapsed = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.elapsed

    @property
    def busy(self) -> bool:
        """Whether a task other than the one that asks can go on without the clock moving."""
        return bool(self._ready)  # type: ignore[attr-defined]


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("every task waits for something that never happens")
        self._loop.elapsed += timeout
        # Nothing is ever read: the loop's own pipe is not used, because there is only one thread.
        return []
