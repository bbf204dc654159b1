"""What continuous batching, paging and the queue's policies are said to give, each as a ratio of two things that were
measured, or simulated, in one run."""
