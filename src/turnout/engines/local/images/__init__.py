"""Images on this machine: what a replica needs to run in one."""
