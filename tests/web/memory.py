"""The memory of a running service."""

import psutil

from tests.running import Service


def resident(service: Service) -> int:
    assert service.process
    return psutil.Process(service.process.pid).memory_info().rss
