"""Recipes, the training loop, run folders."""
