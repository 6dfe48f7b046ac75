"""HTS: deterministic, high-throughput training for deep reinforcement learning."""
