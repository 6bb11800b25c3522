"""Mixed load through three APIs while parts of the service are killed, then a check of every job."""
