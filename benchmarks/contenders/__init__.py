"""One file for each contender.

A contender has some of these functions, and nothing else that the harness knows of:

    publish(place, load, clock) -> int     publishes `load.bodies()`; how many were confirmed
    consume(place, ledger) -> None         has each body noted, until the ledger is complete
    requeue(place, clock) -> int           moves failed messages to the main queue; returns how many

`clock` is entered around the work alone: connecting and importing cost a process once and are no
rate.
"""
