"""The part of Google Cloud Storage's JSON API that its clients use, over `storage/clients.py`; and signed URLs."""

from turnout.gateways.gcs.routes import PREFIXES, routes
from turnout.gateways.gcs.sessions import clear
from turnout.gateways.gcs.signed import SignedUrls

__all__ = ["PREFIXES", "SignedUrls", "clear", "routes"]
