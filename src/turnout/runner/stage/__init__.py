"""Moves data between real object stores and directories, for all jobs of a service, in one process of its own.

It is told what to do in lines of JSON on its standard input, and answers in lines of JSON on its standard output;
what it is told is in `orders`. Credentials travel in those lines only. It ends when its input ends.
"""
