"""What a look has found, kept on this machine: filters, the index, snapshots and archives."""
