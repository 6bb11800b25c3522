"""The runner: runs beside the program of one replica on a node of a cluster, and calls the runner gateway.

It is sent to nodes as one file (`turnout.runner.archive`), in which this package is called `runner`. So it imports only
itself, relatively, and the standard library of Python 3.8.
"""
