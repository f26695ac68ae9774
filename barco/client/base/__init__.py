"""What every part of the client needs: errors, names, a loop in a thread, a future."""
