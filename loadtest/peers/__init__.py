"""Other systems that do the same work, for comparison. Each runs in a process of its own, from its own virtual
environment, and none is a dependency of Headway: `install` sets one up.

catalogue    their names and options
process      a peer's process, as a `System`
protocol     what `bench` and a peer say to each other; nothing but the standard library
vllm_runner, transformers_runner, static_runner, llamacpp_runner    what runs in it
install      `python -m loadtest.peers.install vllm llamacpp`
"""
