"""Google's Vertex AI: custom jobs of `projects.locations.customJobs`, v1 and v1beta1."""

from turnout.dialects.vertex.address import owns
from turnout.dialects.vertex.house import House, WebAccess
from turnout.dialects.vertex.routes import Endpoint

__all__ = ["Endpoint", "House", "WebAccess", "owns"]
