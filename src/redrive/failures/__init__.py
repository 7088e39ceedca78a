"""Failed messages as rows: what is known of each, which of them are meant, what became of them."""
