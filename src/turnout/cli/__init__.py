"""The two command lines, `turnout` and `tictl`. They talk HTTP as any user does; only `serve` and `doctor` do not."""
