"""The two command lines, `turnout` and `tictl`. They are HTTP clients of the service, except `serve` and `doctor`."""
