import json
from collections.abc import Iterator
from typing import Any

import pytest

from phasewatch.hardware.facts import Precision
from phasewatch.models.costs import ModelCosts, ModelSource
from phasewatch.models.sources.gguf import read_show_costs
from tests.support.paths import RECORDINGS

Entry = tuple[str, str, tuple[int, ...]]
"""Name, type and shape of a tensor."""


def load_recorded_response() -> dict[str, Any]:
    """What Ollama 0.33 said of a Llama of 36 million parameters."""
    response: dict[str, Any] = json.loads((RECORDINGS / "ollama-0.33" / "show.json").read_text())["body"]
    return response


def build_response(architecture: str, entries: Iterator[Entry], **keys: Any) -> dict[str, Any]:
    """A response; a double underscore in a key stands for a dot."""
    info = {f"{architecture}.{key.replace('__', '.')}": value for key, value in keys.items()}
    return {
        "model_info": {"general.architecture": architecture, **info},
        "tensors": [{"name": name, "type": kind, "shape": list(shape)} for name, kind, shape in entries],
    }


def llama_3_8b_q4_k_m() -> dict[str, Any]:
    """Llama-3-8B as llama.cpp quantises it to Q4_K_M: half of the layers keep two matrices in 6 bits."""

    def entries() -> Iterator[Entry]:
        yield "token_embd.weight", "Q4_K", (4096, 128_256)
        yield "output.weight", "Q6_K", (4096, 128_256)
        yield "output_norm.weight", "F32", (4096,)
        for layer in range(32):
            wide = "Q6_K" if layer < 4 or layer >= 28 or (layer - 4) % 3 == 2 else "Q4_K"
            yield f"blk.{layer}.attn_norm.weight", "F32", (4096,)
            yield f"blk.{layer}.ffn_norm.weight", "F32", (4096,)
            yield f"blk.{layer}.attn_q.weight", "Q4_K", (4096, 4096)
            yield f"blk.{layer}.attn_k.weight", "Q4_K", (4096, 1024)
            yield f"blk.{layer}.attn_v.weight", wide, (4096, 1024)
            yield f"blk.{layer}.attn_output.weight", "Q4_K", (4096, 4096)
            yield f"blk.{layer}.ffn_gate.weight", "Q4_K", (4096, 14_336)
            yield f"blk.{layer}.ffn_up.weight", "Q4_K", (4096, 14_336)
            yield f"blk.{layer}.ffn_down.weight", wide, (14_336, 4096)

    keys = {"block_count": 32, "embedding_length": 4096, "attention__head_count": 32, "attention__head_count_kv": 8}
    return build_response("llama", entries(), **keys)


def gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    """gpt-oss: experts in MXFP4, the other matrices in 8 bits."""

    def entries() -> Iterator[Entry]:
        yield "token_embd.weight", "Q8_0", (2880, 201_088)
        yield "output.weight", "Q8_0", (2880, 201_088)
        for layer in range(layers):
            yield f"blk.{layer}.attn_q.weight", "Q8_0", (2880, 4096)
            yield f"blk.{layer}.attn_k.weight", "Q8_0", (2880, 512)
            yield f"blk.{layer}.attn_v.weight", "Q8_0", (2880, 512)
            yield f"blk.{layer}.attn_output.weight", "Q8_0", (4096, 2880)
            yield f"blk.{layer}.ffn_gate_inp.weight", "F32", (2880, experts)
            for part in ("gate", "up", "down"):
                yield f"blk.{layer}.ffn_{part}_exps.weight", "MXFP4", (2880, 2880, experts)
                yield f"blk.{layer}.ffn_{part}_exps.bias", "F32", (2880, experts)

    return build_response(
        "gpt-oss",
        entries(),
        block_count=layers,
        embedding_length=2880,
        attention__head_count=64,
        attention__head_count_kv=8,
        attention__key_length=64,
        attention__value_length=64,
        attention__sliding_window=128,
        expert_count=experts,
        expert_used_count=4,
    )


def test_the_weights_of_a_recorded_model_are_exact() -> None:
    costs, reasons = read_show_costs(load_recorded_response())
    assert reasons == ()
    norms = 25 * 512  # in 32 bits
    table = 512 * 261
    assert costs.weight_source is ModelSource.OLLAMA
    assert costs.weight_bytes == 36_455_936 * 2 + norms * 2
    assert costs.reads is not None
    assert costs.reads.dense_bytes == costs.weight_bytes - table * 2
    assert costs.reads.compute_active_parameters() == 36_455_936 - table
    assert costs.reads.head_parameters == table
    assert costs.precision is Precision.BITS16


def test_the_kv_cache_of_a_recorded_model_has_the_size_in_its_log() -> None:
    costs, _ = read_show_costs(load_recorded_response())
    assert costs.kv_cache is not None
    assert costs.kv_cache.compute_bytes_per_token() == 6144
    assert costs.kv_cache.read_bytes(4096) == 24 * 2**20
    assert costs.compute_attention_operations(1) == 4 * 12 * 8 * 64


def test_the_reads_of_published_files_are_as_measured() -> None:
    cases: list[tuple[dict[str, Any], float, float, int]] = [
        (llama_3_8b_q4_k_m(), 4.92, 4.62, 131_072),
        (gpt_oss(24, 32), 12.10, 2.57, 49_152),
        (gpt_oss(36, 128), 63.4, 3.55, 73_728),
    ]
    for response, file_gigabytes, read_gigabytes, cache in cases:
        costs, reasons = read_show_costs(response)
        assert reasons == (), file_gigabytes
        assert costs.weight_bytes is not None, file_gigabytes
        assert costs.weight_bytes / 1e9 == pytest.approx(file_gigabytes, rel=2e-3), file_gigabytes
        assert costs.reads is not None, file_gigabytes
        # Routers are in 32 bits in these tensors.
        assert costs.reads.compute_bytes_per_step() / 1e9 == pytest.approx(read_gigabytes, rel=0.015), file_gigabytes
        assert costs.kv_cache is not None, file_gigabytes
        assert costs.kv_cache.compute_bytes_per_token() == cache, file_gigabytes
        assert costs.precision is None, file_gigabytes


def test_a_tied_embedding_is_read_once() -> None:
    response = load_recorded_response()
    response["tensors"] = [entry for entry in response["tensors"] if entry["name"] != "output.weight"]
    costs, _ = read_show_costs(response)
    assert costs.reads is not None
    assert costs.reads.dense_bytes == costs.weight_bytes


def test_tensors_that_no_step_reads_are_part_of_the_weights_only() -> None:
    for name in ("v.blk.0.attn_q.weight", "mm.0.weight", "a.conv.weight", "blk.12.nextn.eh_proj.weight"):
        response = load_recorded_response()
        response["tensors"].append({"name": name, "type": "F16", "shape": [512, 512]})
        more, _ = read_show_costs(response)
        less, _ = read_show_costs(load_recorded_response())
        assert more.reads == less.reads, name
        assert less.weight_bytes is not None, name
        assert more.weight_bytes == less.weight_bytes + 512 * 512 * 2, name


def test_layers_for_speculative_decoding_are_not_read() -> None:
    response = load_recorded_response()
    response["model_info"]["llama.nextn_predict_layers"] = 2
    costs, reasons = read_show_costs(response)
    whole, _ = read_show_costs(load_recorded_response())
    assert reasons == ()
    assert costs.reads is not None
    assert whole.reads is not None
    layer = (512 * 512 * 2 + 512 * 128 * 2 + 3 * 512 * 1536) * 2 + 2 * 512 * 4
    assert whole.reads.dense_bytes - costs.reads.dense_bytes == 2 * layer


def test_without_tensors_the_weights_are_unknown_but_not_the_cache() -> None:
    cases: list[dict[str, Any]] = [{"tensors": None}, {"tensors": []}]
    for change in cases:
        costs, reasons = read_show_costs(load_recorded_response() | change)
        assert (costs.weight_bytes, costs.weight_source, costs.reads, costs.precision) == (None, None, None, None), (
            change
        )
        assert costs.kv_cache is not None, change
        assert reasons == (
            "/api/show: tensors: missing; Ollama tells them of GGUF models since 0.6.1, so the weights are not known",
        ), change


def test_an_invalid_tensor_makes_the_weights_unknown() -> None:
    cases: list[tuple[object, str]] = [
        (5, "tensors[111]: expected an object, found 5"),
        (
            {"name": "x", "type": "Q9_Z", "shape": [1]},
            "tensors[111].type: 'Q9_Z' is not known, so the weights are not either",
        ),
        ({"name": "x", "shape": [1]}, "tensors[111].type: None is not known, so the weights are not either"),
        ({"type": "F16", "shape": [1]}, "tensors[111].name: missing; expected text"),
        ({"name": "x", "type": "F16", "shape": "1"}, "tensors[111].shape: expected a list, found '1'"),
        ({"name": "x", "type": "F16", "shape": [-1]}, "tensors[111].shape: expected whole numbers above 0"),
        ({"name": "x", "type": "F16", "shape": [2**50]}, "tensors[111].shape: expected whole numbers above 0"),
        ({"name": "x", "type": "F16", "shape": [1] * 9}, "tensors[111].shape: expected whole numbers above 0"),
        ({"name": "x", "type": "Q4_K", "shape": [100]}, "tensors[111].shape: 100 elements are no whole blocks of 256"),
        ({"name": "output.weight", "type": "F16", "shape": [1]}, "tensors[111]: 'output.weight' is given twice"),
    ]
    for entry, expected in cases:
        response = load_recorded_response()
        response["tensors"].append(entry)
        costs, reasons = read_show_costs(response)
        assert (costs.weight_bytes, costs.reads) == (None, None), entry
        assert costs.kv_cache is not None, entry
        assert reasons == (f"/api/show: {expected}",), entry


def test_the_reads_of_a_mixture_without_a_number_of_used_experts_are_unknown() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"expert_count": 8}, "expert_used_count: missing; expected a whole number above 0"),
        ({"expert_count": 8, "expert_used_count": 9}, "expert_used_count: 9 of only 8 experts"),
    ]
    for keys, expected in cases:
        response = load_recorded_response()
        response["model_info"] |= {f"llama.{key}": value for key, value in keys.items()}
        costs, reasons = read_show_costs(response)
        assert costs.weight_bytes is not None, keys
        assert (costs.reads, costs.compute_stream_bytes()) == (None, None), keys
        assert reasons == (f"/api/show: model_info.llama.{expected}",), keys


def test_tensors_of_experts_make_a_mixture_whatever_the_keys_say() -> None:
    response = gpt_oss(2, 32)
    del response["model_info"]["gpt-oss.expert_count"]
    costs, _ = read_show_costs(response)
    assert costs.weight_bytes is not None
    assert (costs.reads, costs.compute_stream_bytes()) == (None, None)


def test_a_response_that_is_not_an_object_gives_nothing() -> None:
    cases: list[object] = [None, [], "x", 5, True]
    for response in cases:
        assert read_show_costs(response) == (ModelCosts(), ("/api/show: expected a JSON object",)), response


def test_without_an_architecture_only_the_total_is_known() -> None:
    cases: list[object] = [None, {}, {"general.architecture": None}, {"general.architecture": ""}]
    for info in cases:
        costs, reasons = read_show_costs(load_recorded_response() | {"model_info": info})
        assert costs.weight_bytes is not None, info
        assert (costs.reads, costs.kv_cache, costs.attention) == (None, None, None), info
        assert reasons == (
            "/api/show: model_info.general.architecture: missing; does this server tell of its models?",
        ), info


def test_any_value_of_any_key_gives_a_figure_or_a_reason() -> None:
    values: list[object] = ["x", -5, 0, 1e9, 10**12, True, float("nan"), [], {}, [[]], None]
    for value in values:
        for key in (key for key in sorted(load_recorded_response()["model_info"]) if key.startswith("llama.")):
            response = load_recorded_response()
            response["model_info"][key] = value
            costs, reasons = read_show_costs(response)
            assert reasons or None not in (costs.weight_bytes, costs.reads, costs.kv_cache, costs.attention), (
                value,
                key,
            )
