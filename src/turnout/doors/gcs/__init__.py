"""The part of Google Cloud Storage's JSON API that its Python library uses, over the embedded buckets."""

from turnout.doors.gcs.routes import routes

__all__ = ["routes"]
