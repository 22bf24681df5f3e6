"""The tuner: what it reads, what it picks, what it writes."""
