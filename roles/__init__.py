"""What a host must be: compositions of operations."""
