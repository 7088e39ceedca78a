"""The same for asyncio, with the work on threads."""
