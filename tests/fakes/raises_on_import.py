"""A module of a simulator whose engine is not there."""

raise ValueError("no engine")
