"""Environments of Python packages for runtimes: made with uv when a job first asks for one, then shared by all.

`definition` says what an environment is made of and names it by a hash of that. `presets` has definitions for the
runtimes of the APIs' catalogues. `environments` makes and keeps environments. The process that runs uv is `builder`;
its user owns nothing else. `protection` takes what it made away from that user. `provider` is what a starting job
uses, `operations` what operators use.
"""
