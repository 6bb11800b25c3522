"""What is beside the user's process on a node.

`plan` says, without doing anything, what a replica's process is to be; `keeper` is the process that starts it,
outlives the service, and tells how it ended.
"""
