"""The runner: what runs beside the user's process on a node.

`plan` computes what a replica's process will be, without doing anything. `supervisor` is the process that starts it,
outlives the service, and reports how it ended. `stager` copies data.
"""
