"""Load tests: workloads and scenarios through Headway and through others, and what that measured.

Above everything else: it may import the whole of ``headway``, and nothing there may import it but the command line.
"""
