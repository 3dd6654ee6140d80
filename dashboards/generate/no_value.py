"""What panels of several dashboards show when there is no value."""

from typing import Final

NO_ENGINE: Final = "Not known: no server with engines answered, or none has had a request yet"
NO_TARGET: Final = "No target is known: does Prometheus scrape PhaseWatch?"
NO_EXPORTER: Final = "No exporter answers"
NOTHING_DECODED: Final = "Nothing was decoded in this time"
NO_REQUEST_FINISHED: Final = "No request finished in this time"
NO_EVENTS: Final = "None in this time"
