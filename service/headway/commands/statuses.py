"""Exit statuses of the command line."""

FAILED = 1
"""What was asked for did not come about."""
USAGE = 2
"""It was asked wrongly: an argument, a flag, a setting."""
INTERRUPTED = 130
"""By Ctrl-C or SIGTERM, as shells have it."""
