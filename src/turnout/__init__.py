"""Turnout: a training-job service that speaks the APIs of three clouds and runs the jobs itself."""

__version__ = "0.1.0"
