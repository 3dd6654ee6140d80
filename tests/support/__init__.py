"""What several tests share: fakes at the edge of the network, processes, pages, simulated users."""
