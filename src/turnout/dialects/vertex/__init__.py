"""Google's Vertex AI: custom and hyperparameter tuning jobs of `projects.locations`, v1 and v1beta1."""

from turnout.dialects.vertex.address import owns
from turnout.dialects.vertex.house import House, WebAccess
from turnout.dialects.vertex.routes import Endpoint
from turnout.dialects.vertex.trials import trial_jobs

__all__ = ["Endpoint", "House", "WebAccess", "owns", "trial_jobs"]
