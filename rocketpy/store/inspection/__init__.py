"""A store directory read and checked from outside, for tools; nothing is ever written."""
