"""What the simulated servers have in common: clients, the duration of steps, the script, and the ledger of truth."""
