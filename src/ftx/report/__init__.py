"""What people read: progress, tables, help."""
