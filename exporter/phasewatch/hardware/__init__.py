"""Devices: the shipped table, name resolution, detection through drivers or DCGM, and measured memory bandwidth."""
