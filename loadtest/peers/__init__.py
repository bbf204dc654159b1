"""Other systems that do the same work, for comparison. Each runs in a process of its own, from its own virtual
environment, and none is a dependency of Headway: `install` sets one up.

protocol     what `bench` and a peer say to each other; nothing but the standard library
process      a peer's process, as a `System`
vllm_runner, transformers_runner, llamacpp_runner    what runs in it
install      `python -m loadtest.peers.install vllm llamacpp`
"""
