"""The parent of every replica on this machine: one process for each data directory.

It starts gangs, marks their logs, enforces limits, stops replicas (TERM, grace, KILL), and keeps a journal. All of this
goes on while the service is away, and nothing is lost when the supervisor itself is killed.

It needs only the standard library, because it runs with `python -I -S` and must stay small. Where there is a key ring
it also loads the log encrypter (`logs/sealed_log.py`). The service talks to it over a Unix socket in lines of JSON
(`channel.py`). Everything runs in one thread (`loop.py`).
"""
