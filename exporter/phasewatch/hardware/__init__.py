"""What a target runs on: the table of devices, how a reported name resolves, and what the machine itself tells."""
