"""Failed messages: reading, filtering, grouping, requeueing and discarding them."""
