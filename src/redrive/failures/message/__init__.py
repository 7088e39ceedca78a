"""A failed message: its columns, its cause, its way back, its edits. Pure."""
