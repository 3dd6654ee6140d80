"""One module per kind of server: fetch its page, give a typed snapshot."""
