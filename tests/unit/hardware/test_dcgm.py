from hypothesis import given
from hypothesis import strategies as st

from phasewatch.hardware.dcgm import parse_dcgm_page
from phasewatch.hardware.facts import MAX_DEVICES
from phasewatch.hardware.reported import MIB, DetectedDevices, ReportedDevice


def series(name: str, value: str, **labels: str) -> str:
    pairs = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {value}\n"


def test_each_gpu_of_the_page_is_reported_once() -> None:
    page = "# TYPE DCGM_FI_DEV_SM_CLOCK gauge\n"
    for gpu, name in (("0", "NVIDIA L40S"), ("1", "NVIDIA L40S"), ("2", "Tesla T4")):
        labels = {"gpu": gpu, "UUID": f"GPU-{gpu}", "device": f"nvidia{gpu}", "modelName": name, "Hostname": "h"}
        page += series("DCGM_FI_DEV_SM_CLOCK", "210", **labels)
        page += series("DCGM_FI_DEV_FB_USED", "40000", **labels)
        if gpu != "2":
            page += series("DCGM_FI_DEV_FB_FREE", "5500", **labels)
        if gpu == "1":
            page += series("DCGM_FI_DEV_FB_RESERVED", "568", **labels)
    assert parse_dcgm_page(page) == DetectedDevices(
        (
            ReportedDevice("NVIDIA L40S", 45500 * MIB),
            ReportedDevice("NVIDIA L40S", 46068 * MIB),
            ReportedDevice("Tesla T4"),
        )
    )


def test_the_total_memory_is_preferred_to_the_sum_of_used_and_free() -> None:
    page = "".join(
        series(f"DCGM_FI_DEV_FB_{suffix}", value, gpu="0", modelName="NVIDIA L4")
        for suffix, value in (("USED", "1"), ("FREE", "2"), ("TOTAL", "23034"))
    )
    assert parse_dcgm_page(page).devices == (ReportedDevice("NVIDIA L4", 23034 * MIB),)


def test_a_gpu_with_mig_is_reported_as_its_instances_and_not_as_a_whole() -> None:
    common = {"gpu": "0", "UUID": "GPU-a", "modelName": "NVIDIA A30"}
    page = series("DCGM_FI_DEV_GPU_TEMP", "40", **common)
    for number in ("3", "4"):
        instance = common | {"GPU_I_PROFILE": "1g.6gb", "GPU_I_ID": number}
        page += series("DCGM_FI_DEV_FB_USED", "12", **instance) + series("DCGM_FI_DEV_FB_FREE", "5928", **instance)
    page += series("DCGM_FI_DEV_GPU_TEMP", "40", gpu="1", UUID="GPU-b", modelName="NVIDIA A30")
    assert parse_dcgm_page(page).devices == (
        ReportedDevice("NVIDIA A30", 5940 * MIB, "1g.6gb"),
        ReportedDevice("NVIDIA A30", 5940 * MIB, "1g.6gb"),
        ReportedDevice("NVIDIA A30"),
    )


def test_a_blank_value_leaves_the_memory_unknown() -> None:
    for value in ("9223372036854775794", "NaN", "+Inf", "-1", "0"):
        page = series("DCGM_FI_DEV_FB_TOTAL", value, gpu="0", modelName="NVIDIA L4")
        assert parse_dcgm_page(page).devices == (ReportedDevice("NVIDIA L4"),), value


def test_a_page_of_something_else_gives_a_reason_in_one_line() -> None:
    cases = [
        ("", "the page has no DCGM_FI_ metrics with a modelName"),
        ("vllm:num_requests_running 1\n", "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0"} 210\n', "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName=""} 210\n', "the page has no DCGM_FI_ metrics with a modelName"),
        ("<html>no metrics</html>", "the page has no DCGM_FI_ metrics with a modelName"),
        ('DCGM_FI_DEV_FB_TOTAL{modelName="NVIDIA L4"', "the page is not in the text format of Prometheus: "),
        ("DCGM_FI_\0" * 1000, "the page is not in the text format of Prometheus: "),
    ]
    for page, reason in cases:
        detected = parse_dcgm_page(page)
        assert detected.devices == (), page[:80]
        assert detected.reason, page[:80]
        assert detected.reason.startswith(reason), page[:80]
        assert "\n" not in detected.reason, page[:80]
        assert len(detected.reason) < 300, page[:80]


def test_lines_of_other_exporters_on_the_page_are_not_parsed() -> None:
    dcgm = series("DCGM_FI_DEV_FB_TOTAL", "23034", gpu="0", modelName="NVIDIA L4")
    others = 'kube_pod_labels{pod="a" 1\n<html>\nx{DCGM_FI_="DCGM_FI_DEV_FB_TOTAL{"} nonsense\n'
    assert parse_dcgm_page(others + dcgm + others) == DetectedDevices((ReportedDevice("NVIDIA L4", 23034 * MIB),))


def test_a_page_with_the_devices_of_a_whole_cluster_is_refused() -> None:
    page = "".join(
        series("DCGM_FI_DEV_SM_CLOCK", "1", gpu=str(index), modelName="NVIDIA L4") for index in range(MAX_DEVICES + 1)
    )
    detected = parse_dcgm_page(page)
    assert detected == DetectedDevices((), "the page shows more than 1024 devices; it is no single DCGM exporter's")


@given(st.text() | st.text('DCGM_FI_DEV{}=",\\modelName 01\n#eE+-.', max_size=200))
def test_any_page_gives_devices_or_a_reason(page: str) -> None:
    detected = parse_dcgm_page(page)
    assert bool(detected.devices) != bool(detected.reason)
