"""What all of the store uses: errors, settings, retention rules."""
