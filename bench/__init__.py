"""Measures rocketpy beside the official Java broker with the same bytes. Not part of the installed package."""
