"""The parent of every replica on this machine: one process for each data directory.

It starts gangs, marks their logs, enforces time limits and TERM → grace → KILL, and keeps a journal, so that
all of this goes on while the service is away and nothing is lost when the keeper itself is killed.

Standard library only: it is run with `python -I -S` and must stay small. Where there is a key ring it also loads what
seals logs, see `sealing`. The service talks to it over a Unix socket in lines of JSON (see `channel`); all that it
decides is in `loop`.
"""
