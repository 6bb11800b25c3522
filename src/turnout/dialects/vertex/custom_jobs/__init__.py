"""Custom jobs: the calls, and what a job is checked for and translated to."""
