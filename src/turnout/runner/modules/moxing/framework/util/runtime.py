"""Logging. Huawei's moxing changes the root logger when it is imported; this one does not."""

from __future__ import annotations

import logging


def reset_logger(level: int = logging.INFO) -> None:
    logging.getLogger().setLevel(level)
