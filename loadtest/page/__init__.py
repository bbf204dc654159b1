"""Reports of `headway bench` as one HTML page: tables, and plots as SVG in its text, so that it needs nothing else."""
