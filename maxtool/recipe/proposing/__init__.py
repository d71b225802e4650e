"""Recipes proposed for checkpoints that none recognises."""
