"""Google's Vertex AI: custom and hyperparameter tuning jobs of `projects.locations`, v1 and v1beta1."""

from turnout.dialects.vertex.routes import Vertex

__all__ = ["Vertex"]
