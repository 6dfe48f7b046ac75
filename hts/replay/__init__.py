"""What off-policy algorithms learn from again and again."""
