"""The stager: a process that copies data between remote object stores and local directories, for all jobs of a service.

It reads transfer orders as lines of JSON from its standard input and writes replies as lines of JSON to its standard
output; see `messages`. Credentials are passed only in those lines. The process ends when its input ends.
"""
