"""What `Monitor` is made of: changes committed in place, the present data, the log, the file."""
