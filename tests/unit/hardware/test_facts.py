from phasewatch.hardware.facts import parse_bandwidth


def test_a_plausible_bandwidth_is_between_a_gigabyte_and_a_hundred_terabytes_per_second() -> None:
    for value, bandwidth in ((864e9, 864e9), (17_100_000_000, 17.1e9), (1e9, 1e9), (1e14, 1e14)):
        assert parse_bandwidth(value) == bandwidth, value
    for refused in (None, 0, 1, 9e8, 1.1e14, -864e9, float("nan"), float("inf"), True, "864e9", 10**400):
        assert parse_bandwidth(refused) is None, refused
