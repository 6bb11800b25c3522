"""Training pipelines: a custom job or a tuning job, and the Model that its program leaves behind."""
