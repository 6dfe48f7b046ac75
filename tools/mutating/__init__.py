"""Mutation testing: does a fast test notice when a line of the product is wrong?"""
