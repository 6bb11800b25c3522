"""Cloud Logging: `entries:list` for the logs of a job."""
