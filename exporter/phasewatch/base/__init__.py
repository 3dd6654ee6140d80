"""What every other package may use: errors, units, logging, and arithmetic over unknown figures."""
