"""Loading, the speculation loop, sampling, verification, statistics."""
