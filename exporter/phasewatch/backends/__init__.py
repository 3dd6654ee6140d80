"""The kinds of servers."""
