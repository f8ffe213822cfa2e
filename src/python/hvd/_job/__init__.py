"""A job as its processes see it: run(), payloads, results, meeting, signals, stacks, debugger."""
