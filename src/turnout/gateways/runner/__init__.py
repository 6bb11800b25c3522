"""The runner gateway: what runners on the nodes of clusters call, below `/runner/v1/`.

routes.py  addresses, tokens, errors
wire.py    the documents
"""

from turnout.gateways.runner.routes import PREFIX, app

__all__ = ["PREFIX", "app"]
