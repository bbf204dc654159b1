"""What can be measured.

target           the parts of Headway by name
systems          every target behind one interface
engine_child     the engine alone, in a process of its own
engine_target    what runs in it
nats_target      the whole path
role_child       a queue or a worker of it, in a process of its own
"""
