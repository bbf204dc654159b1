"""Load tests: a fixed workload through Headway, and what it measured.

Above everything else: it may import the whole of ``headway``, and nothing there may import it but the command line.
"""
