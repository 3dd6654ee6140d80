"""One bounded HTTP request, and the base class of what watches a target by such requests."""
