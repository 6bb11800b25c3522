"""Hyperparameter tuning jobs and their trials."""
