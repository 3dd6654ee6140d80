"""One bounded request, and the scraper that makes them at a steady pace."""
