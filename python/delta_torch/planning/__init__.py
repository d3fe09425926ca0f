"""What a training step would take on a machine, and under which budget, without that machine."""
