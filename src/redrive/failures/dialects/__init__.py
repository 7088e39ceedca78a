"""What frameworks leave on a message that has failed for good, each in a module of its own."""
