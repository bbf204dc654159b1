"""What can be measured.

target               what there is, by name
systems              Headway's own behind one interface
engine_child         the engine alone, in a process of its own
engine_target        what runs in it
nats_target          the whole path
nats_senders         its clients
role_child           a queue or a worker of it, in a process of its own
server               a server that is there already, as it is named
openai_target        such a server as a system
openai_clients       its clients
openai_dialect       what it takes of their requests
openai_stream        one answer of it
sending              requests from an event loop, each when it is due
"""
