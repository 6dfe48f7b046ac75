"""What a run costs, what its machine could do at best, and what it does."""
