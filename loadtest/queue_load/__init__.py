"""The queue under load: how fast jobs come in, are granted and settled, with many waiting and no model.

    this process ──publishes──▶ nats-server ◀──reads, acks── queue ◀──lease streams── simulated workers

The queue is the real one, in a process of its own, and so is nats-server. The workers are real lease clients that hold
and account for grants as a worker does, all of them in one process; in place of an engine each of them ends its jobs at
once, so that what is measured is the queue and not a model.
"""
