"""`make bench` measures what there is, although no test asserts a time."""

from itertools import islice

from bench import bench
from phasewatch.recordings.format import RecordingReader


def test_the_bench_parses_and_derives_the_pages_of_its_recording() -> None:
    scrapes = islice(RecordingReader(bench.RECORDING).read_scrapes(), 3)
    bodies = [scrape.response.body.decode() for scrape in scrapes if scrape.response]
    assert len(bodies) == 3
    assert bench.parse_and_derive(bodies) > 0
