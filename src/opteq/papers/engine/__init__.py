"""What experiments are made of, and how they are run. Nothing here knows a paper."""
