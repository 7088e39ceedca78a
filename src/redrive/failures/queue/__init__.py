"""What is done at the broker: looks, plans, requeues, canaries, outcomes."""
