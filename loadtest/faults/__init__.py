"""Breaking things on purpose: the processes of Headway as real ones, to be killed, stopped and cut off.

    fleet       nats-server, `headway queue` and `headway worker`, on free ports
    process     one of them: start, kill -9, SIGSTOP, SIGCONT, SIGTERM
    template    engine children that start at once
    proxy       a bad line: cut, delayed, or a black hole
    gate        a line to NATS that lets through just so many tokens of each job
    joblogs     every record of every job, and whether a log is as it must be

The tests of ``tests/faults`` and `loadtest.soak` are made of these.
"""
