"""What is asked of a system, and when.

requests             requests of exact lengths, and the workload file that lists them
scenario             what may stand in a scenario; its distributions and scenario_arrivals are modules of their own
scenario_files       scenarios by name or file
trace                lengths and times that a service has recorded
drawing              a scenario's requests, from its seed
overrides            what a command line changes of a scenario
arrivals             how requests come, for a rate that may only be known later
plan                 when each is sent: times, or a closed loop
workload             all of it together, for one benchmark
"""
