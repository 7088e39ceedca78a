"""The torture run: random faults while every mechanism is at work, and a count of each message."""
