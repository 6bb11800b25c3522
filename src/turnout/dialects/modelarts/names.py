"""Names that the dialect gives to its jobs in the job model."""

DIALECT = "modelarts"
DEFAULT_WORKSPACE = "0"
DEFAULT_AI_PROJECT = "default-ai-project"
TRIAL_SCOPE = "trial"
"""The job of a trial has the scope `trial:<id of the search job>`."""


def scope_of(workspace_id: str) -> str:
    """The scope in which the names of a workspace's jobs are unique."""
    return f"{DIALECT}:{workspace_id}"
