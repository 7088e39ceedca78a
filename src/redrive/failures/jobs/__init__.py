"""Who did what, and why: the journal, jobs, approvals, and remarks on causes."""
