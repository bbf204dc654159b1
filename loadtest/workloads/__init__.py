"""What is asked of a system, and when.

requests     requests of exact lengths, and the workload file that lists them
"""
