"""Run a fixed handler over failed messages before anything is sent."""
