"""Symmetric memory: windows, and how programs read and write them."""
