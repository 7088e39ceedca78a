"""Support for the failure notes of other frameworks, one module per framework."""
