"""The parts of the service, each made of the parts before it: base, engines, jobs, dialects, web."""
