"""Reports of `headway bench` read back, and compared with one another."""
