"""Finds how a worker should form its batches, by stress, and shows what each setting does."""
