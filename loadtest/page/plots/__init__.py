"""The plots of the page, each of them left out where its data are absent."""
