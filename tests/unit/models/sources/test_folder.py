import json
from pathlib import Path
from typing import Any

import pytest

from phasewatch.hardware.facts import Precision
from phasewatch.models.costs import ModelCosts, ModelSource
from phasewatch.models.shape.cache_types import apply_cache_dtype
from phasewatch.models.sources.folder import read_folder_costs
from tests.support.model_folders import build_llama_shapes, load_config, write_header, write_json, write_tensors

INDEX = "model.safetensors.index.json"


def write_config(path: Path, document: object) -> Path:
    write_json(path / "config.json", document)
    return path


def write_index(path: Path, total_size: float) -> None:
    document = {"metadata": {"total_size": total_size}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    write_json(path / INDEX, document)


def test_headers_and_config_json_agree_byte_for_byte(tmp_path: Path) -> None:
    document = load_config("llama-recordings")
    computed, _ = read_folder_costs(write_config(tmp_path, document))
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(document))
    exact, reasons = read_folder_costs(tmp_path)
    assert reasons == ()
    assert (computed.weight_source, exact.weight_source) == (ModelSource.CONFIG_JSON, ModelSource.SAFETENSORS)
    assert computed.weight_bytes == exact.weight_bytes == 221_844_096
    assert computed.reads == exact.reads
    assert exact.reads is not None
    assert exact.reads.compute_active_parameters() == 110_922_048
    assert exact.kv_cache is not None
    assert exact.kv_cache.compute_bytes_per_token() == 23_040
    assert exact.compute_attention_operations(1) == 4 * 30 * 9 * 64
    assert exact.precision is Precision.BITS16


def test_an_untied_embedding_is_part_of_the_weights_but_not_read(tmp_path: Path) -> None:
    document = load_config("llama-3.1-8b")
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(document))  # 16 GB that take no room
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert reasons == ()
    assert costs.weight_bytes == 16_060_522_496
    assert costs.reads is not None
    assert costs.reads.compute_bytes_per_step() == 15_009_849_344
    assert costs.reads.head_parameters == 128_256 * 4096


def test_tensors_decide_where_sections_of_config_json_contradict_each_other(tmp_path: Path) -> None:
    text = load_config("llama-recordings")
    document = {"model_type": "x", "text_config": text | {"tie_word_embeddings": False}, "tie_word_embeddings": True}
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(text))
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert reasons == ()
    assert costs.reads is not None
    assert costs.reads.head_parameters == 8192 * 576
    write_config(tmp_path, text | {"tie_word_embeddings": False})
    costs, reasons = read_folder_costs(tmp_path)
    assert costs.reads is None
    assert reasons[0].startswith("the tensors have no output head")


def test_weights_in_several_files_are_those_of_one_model(tmp_path: Path) -> None:
    document = load_config("llama-recordings")
    shapes = build_llama_shapes(document)
    names = {"a.safetensors": list(shapes)[:100], "b.safetensors": list(shapes)[100:]}
    for file, tensors in names.items():
        write_tensors(tmp_path / file, {name: shapes[name] for name in tensors})
    write_json(tmp_path / INDEX, {"weight_map": {name: file for file, part in names.items() for name in part}})
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert (costs.weight_bytes, costs.weight_source, reasons) == (221_844_096, ModelSource.SAFETENSORS, ())


def test_an_index_without_its_files_gives_the_total_and_config_json_the_reads(tmp_path: Path) -> None:
    write_index(write_config(tmp_path, load_config("llama-3.1-8b")), 16_060_522_496)
    costs, reasons = read_folder_costs(tmp_path)
    assert reasons == ()
    assert (costs.weight_bytes, costs.weight_source) == (16_060_522_496, ModelSource.INDEX)
    assert costs.reads is not None
    assert costs.reads.compute_bytes_per_step() == 15_009_849_344


def test_an_index_that_disagrees_with_config_json_leaves_the_reads_unknown(tmp_path: Path) -> None:
    for total in (15.7e9, 16.4e9, 8.1e9, 32.1e9):
        write_index(write_config(tmp_path, load_config("llama-3.1-8b")), total)
        costs, reasons = read_folder_costs(tmp_path)
        assert costs.weight_bytes == total, total
        assert costs.reads is None, total
        assert reasons == (
            (
                f"the index tells of {total / 1e9:.2f} GB of weights, config.json of 16.06 GB,"
                " so what a step reads is unknown"
            ),
        ), total


def test_an_index_that_differs_from_config_json_by_more_than_a_factor_of_two_is_ignored(tmp_path: Path) -> None:
    for total in (1.0, 5.7e9, 32.2e9, 9e18):
        write_index(write_config(tmp_path, load_config("llama-3.1-8b")), total)
        costs, (reason,) = read_folder_costs(tmp_path)
        assert (costs.weight_bytes, costs.weight_source) == (16_060_522_496, ModelSource.CONFIG_JSON), total
        assert costs.reads is not None, total
        assert reason == (
            f"the index tells of {total / 1e9:.2f} GB of weights, config.json of 16.06 GB, so the index is not believed"
        ), total


def test_vision_parts_may_dominate_the_total_of_an_index(tmp_path: Path) -> None:
    write_index(write_config(tmp_path, load_config("gemma-3-27b")), 200e9)
    assert read_folder_costs(tmp_path)[0].weight_bytes == 200e9


def test_an_absurd_total_of_an_index_is_refused(tmp_path: Path) -> None:
    write_index(write_config(tmp_path, load_config("llama-3.1-8b")), 10**400)
    costs, (reason,) = read_folder_costs(tmp_path)
    assert costs.weight_source is ModelSource.CONFIG_JSON
    assert reason.startswith(f"{tmp_path / INDEX}: metadata.total_size: expected a number of bytes, found 1000")


def test_stream_bytes_of_a_mixture_with_unknown_experts_are_unknown(tmp_path: Path) -> None:
    write_index(write_config(tmp_path, load_config("qwen3-30b-a3b")), 50e9)
    costs, _ = read_folder_costs(tmp_path)
    assert (costs.weight_bytes, costs.reads, costs.compute_stream_bytes()) == (50e9, None, None)
    write_config(tmp_path, load_config("qwen3-30b-a3b", num_experts_per_tok=None))
    assert read_folder_costs(tmp_path)[0].compute_stream_bytes() is None


def test_tensors_of_experts_make_a_mixture_whatever_config_json_says(tmp_path: Path) -> None:
    shapes = build_llama_shapes(load_config("llama-recordings")) | {
        "model.layers.0.mlp.experts.w": ("BF16", (4, 100, 576))
    }
    write_tensors(tmp_path / "model.safetensors", shapes)
    for document in (None, load_config("llama-recordings")):
        if document is not None:
            write_config(tmp_path, document)
        costs, _ = read_folder_costs(tmp_path)
        assert costs.weight_bytes is not None
        assert (costs.reads, costs.compute_stream_bytes()) == (None, None)


def test_the_reads_of_a_model_with_an_encoder_are_unknown(tmp_path: Path) -> None:
    document = load_config("llama-recordings", is_encoder_decoder=True)
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(document))
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert (costs.weight_bytes, costs.reads, costs.kv_cache) == (221_844_096, None, None)
    assert costs.compute_stream_bytes() is None
    assert reasons == ("config.json: is_encoder_decoder: models with an encoder are not counted",)


def test_empty_weight_files_are_reported_and_config_json_is_used(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", {"model.embed_tokens.weight": ("BF16", (0, 576))})
    costs, (reason,) = read_folder_costs(write_config(tmp_path, load_config("llama-recordings")))
    assert costs.weight_source is ModelSource.CONFIG_JSON
    assert reason == f"{tmp_path}: the weight files hold nothing: are they complete?"


def test_vision_and_audio_parts_of_phi_4_are_not_read(tmp_path: Path) -> None:
    for name in ("lora_A.speech", "lora_B.speech", "lora_A.vision", "lora_B.vision"):
        document = load_config("llama-recordings")
        shapes = build_llama_shapes(document)
        shapes["model.embed_tokens_extend.image_embed.img_processor.encoder.layers.0.fc.weight"] = ("BF16", (100, 100))
        shapes[f"model.layers.0.mlp.down_proj.{name}.weight"] = ("BF16", (100, 100))
        write_tensors(tmp_path / "model.safetensors", shapes)
        costs, reasons = read_folder_costs(write_config(tmp_path, document))
        assert reasons == (), name
        assert costs.weight_bytes == 221_844_096 + 40_000, name
        assert costs.reads is not None, name
        assert costs.reads.compute_bytes_per_step() == 221_844_096, name


def test_a_multimodal_config_json_alone_gives_the_reads_but_not_the_total(tmp_path: Path) -> None:
    costs, reasons = read_folder_costs(write_config(tmp_path, load_config("gemma-3-27b")))
    assert (costs.weight_bytes, costs.weight_source) == (None, None)
    assert costs.reads is not None
    assert costs.reads.compute_bytes_per_step() / 1e9 == pytest.approx(54.02, rel=1e-3)
    assert reasons == (
        "config.json: the parts for pictures or sound are not counted, so the weights as a whole are not known",
    )


def test_a_tower_is_part_of_the_weights_but_not_read(tmp_path: Path) -> None:
    text = load_config("llama-recordings")
    shapes = {f"language_model.{name}": tensor for name, tensor in build_llama_shapes(text).items()}
    shapes["vision_tower.layers.0.weight"] = ("BF16", (1000, 1000))
    write_tensors(tmp_path / "model.safetensors", shapes)
    document = {"model_type": "llava", "text_config": text, "vision_config": {"hidden_size": 1000}}
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert reasons == ()
    assert costs.weight_bytes == 221_844_096 + 2_000_000
    assert costs.reads is not None
    assert costs.reads.compute_bytes_per_step() == 221_844_096


def test_packed_weights_have_exact_bytes_and_the_parameters_of_config_json(tmp_path: Path) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 64}
    document = load_config("llama-recordings", quantization_config=awq)
    shapes: dict[str, Any] = {}
    for name, (dtype, shape) in build_llama_shapes(document).items():
        if "_proj" not in name:
            shapes[name] = (dtype, shape)
            continue
        outputs, inputs = shape
        stem = name.removesuffix("weight")
        shapes[f"{stem}qweight"] = ("I32", (inputs, outputs // 8))
        shapes[f"{stem}qzeros"] = ("I32", (inputs // 64, outputs // 8))
        shapes[f"{stem}scales"] = ("F16", (inputs // 64, outputs))
    computed, _ = read_folder_costs(write_config(tmp_path, document))
    write_tensors(tmp_path / "model.safetensors", shapes)
    exact, reasons = read_folder_costs(tmp_path)
    assert reasons == ()
    assert computed.reads is not None
    assert exact.reads is not None
    assert exact.weight_bytes == computed.weight_bytes
    assert exact.reads.dense_bytes == computed.reads.dense_bytes
    assert exact.reads.compute_active_parameters() == 110_922_048
    assert exact.precision is Precision.BITS16


def test_packed_weights_of_an_unsupported_architecture_have_bytes_without_parameters(tmp_path: Path) -> None:
    document = load_config("llama-recordings", model_type="newcomer")
    shapes = build_llama_shapes(document) | {"model.layers.0.mlp.up_proj.weight": ("U8", (1000,))}
    write_tensors(tmp_path / "model.safetensors", shapes)
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert reasons == ()
    assert costs.reads is not None
    assert costs.reads.dense_bytes == costs.weight_bytes
    assert costs.reads.compute_active_parameters() is None


def test_the_tensors_of_experts_give_the_reads_of_a_mixture(tmp_path: Path) -> None:
    document = load_config("llama-recordings", num_experts=4, num_experts_per_tok=2)
    shapes = build_llama_shapes(document)
    for layer in range(30):
        shapes[f"model.layers.{layer}.mlp.experts.gate_up_proj"] = ("BF16", (4, 100, 576))
    write_tensors(tmp_path / "model.safetensors", shapes)
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    assert reasons == ()
    assert costs.reads is not None
    one = 30 * 100 * 576
    assert costs.reads.compute_bytes_per_step(1) == pytest.approx(221_844_096 + 2 * 2 * one)
    assert costs.reads.compute_active_parameters() == 110_922_048 + 2 * one


def test_the_reads_of_weights_in_32_bits_are_unknown(tmp_path: Path) -> None:
    document = load_config("llama-recordings", dtype="float32")
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(document, "F32"))
    costs, reasons = read_folder_costs(write_config(tmp_path, document))
    figures = (
        costs.weight_bytes,
        costs.weight_source,
        costs.reads,
        costs.precision,
        costs.compute_attention_operations(1),
    )
    assert figures == (443_688_192, ModelSource.SAFETENSORS, None, None, 4 * 30 * 9 * 64)
    assert costs.kv_cache is not None
    assert costs.kv_cache.bytes_per_element is None
    assert reasons == (
        f"{tmp_path}: weights in 32 bits, which most servers turn into 16, so what a step reads is not known",
        "config.json: dtype: expected bfloat16 or float16, found 'float32'",
    )


def test_a_format_stated_in_another_file_is_not_taken_for_16_bits(tmp_path: Path) -> None:
    for name in ("hf_quant_config.json", "quantize_config.json", "quant_config.json"):
        path = tmp_path / name.removesuffix(".json")
        path.mkdir()
        write_config(path, load_config("llama-3.1-8b"))
        (path / name).write_text("{}")
        costs, reasons = read_folder_costs(path)
        assert (costs.weight_bytes, costs.reads, costs.precision) == (None, None, None), name
        assert costs.kv_cache is not None, name
        assert reasons == (f"{path / name}: the format of the weights is told there and not in config.json",), name


def test_with_a_cache_type_of_the_server_the_folder_need_not_state_one(tmp_path: Path) -> None:
    asked = {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    write_config(tmp_path, load_config("llama-3.1-8b", quantization_config=asked))
    shape, (reason,) = read_folder_costs(tmp_path)
    assert reason.endswith("kv_cache_scheme: whether the server follows it is not known; set model.kv_cache_dtype")
    for cache_dtype in ("fp8_e5m2", "turboquant_k8v4"):
        assert read_folder_costs(tmp_path, cache_dtype) == (shape, ()), cache_dtype
    assert shape.kv_cache is not None
    assert shape.kv_cache.compute_bytes_per_token() is None
    assert apply_cache_dtype(shape.kv_cache, "fp8").compute_bytes_per_token() == 65_536


def test_an_unsupported_architecture_may_still_have_a_known_kv_cache(tmp_path: Path) -> None:
    costs, reasons = read_folder_costs(write_config(tmp_path, load_config("llama-3.1-8b", model_type="newcomer")))
    assert (costs.weight_bytes, costs.reads) == (None, None)
    assert costs.kv_cache is not None
    assert costs.kv_cache.compute_bytes_per_token() == 131_072
    assert len(reasons) == 1


def test_a_damaged_weight_file_is_reported_and_config_json_is_used(tmp_path: Path) -> None:
    write_config(tmp_path, load_config("llama-3.1-8b"))
    write_header(tmp_path / "model.safetensors", {"a": {"dtype": "BF16", "shape": [1], "data_offsets": [-2, 0]}}, 2)
    costs, reasons = read_folder_costs(tmp_path)
    assert costs.weight_source is ModelSource.CONFIG_JSON
    assert reasons == (f"{tmp_path / 'model.safetensors'}: 'a': data_offsets: expected where its data begins and ends",)


def test_an_index_that_points_outside_the_folder_is_reported_and_not_followed(tmp_path: Path) -> None:
    home = tmp_path / "model"
    home.mkdir()
    write_tensors(tmp_path / "outside.safetensors", build_llama_shapes(load_config("llama-recordings")))
    write_json(
        write_config(home, load_config("llama-recordings")) / INDEX, {"weight_map": {"a": "../outside.safetensors"}}
    )
    costs, reasons = read_folder_costs(home)
    assert costs.weight_source is ModelSource.CONFIG_JSON
    assert len(reasons) == 1
    assert reasons[0].startswith(f"{home / INDEX}: weight_map: expected the names of files beside it")


def test_a_snapshot_of_the_hub_is_read_through_its_links(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    write_json(blobs / "1", load_config("llama-recordings"))
    write_tensors(blobs / "2", build_llama_shapes(load_config("llama-recordings")))
    (snapshot / "config.json").symlink_to("../../blobs/1")
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    costs, reasons = read_folder_costs(snapshot)
    assert (costs.weight_bytes, costs.weight_source, reasons) == (221_844_096, ModelSource.SAFETENSORS, ())


def test_a_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write_config(tmp_path / "real", load_config("llama-recordings"))
    (tmp_path / "current").symlink_to("real")
    assert read_folder_costs(tmp_path / "current") == read_folder_costs(tmp_path / "real")


def test_a_loop_of_links_is_reported_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    costs, reasons = read_folder_costs(tmp_path / "a")
    assert costs == ModelCosts()
    assert len(reasons) == 1
    assert reasons[0].startswith(f"{tmp_path / 'a'}: cannot be read: ")


def test_a_path_that_is_not_a_folder_is_reported(tmp_path: Path) -> None:
    for present in (False, True):
        path = tmp_path / "model"
        if present:
            path.write_text("x")
        costs, (reason,) = read_folder_costs(path)
        assert costs == ModelCosts(), present
        assert reason == (
            f"{path}: expected a folder with the files of a model"
            if present
            else f"{path}: cannot be read: No such file or directory"
        ), present


def test_an_invalid_config_json_is_reported_with_its_path(tmp_path: Path) -> None:
    cases = [
        ("", "no valid JSON: "),
        ("[" * 200_000, "no valid JSON: "),
        ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "no valid JSON: "),
        ("[]", "expected a JSON object"),
        (" " * 10_000_001, "is larger than 10 MB"),
    ]
    for text, expected in cases:
        (tmp_path / "config.json").write_text(text)
        costs, (reason,) = read_folder_costs(tmp_path)
        assert costs == ModelCosts(), text[:80]
        assert reason.startswith(f"{tmp_path / 'config.json'}: {expected}"), text[:80]


def test_a_folder_without_config_json_gives_only_the_total_of_its_weights(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", build_llama_shapes(load_config("llama-recordings")))
    costs, reasons = read_folder_costs(tmp_path)
    assert costs == ModelCosts(weight_bytes=221_844_096, weight_source=ModelSource.SAFETENSORS)
    assert reasons == (f"{tmp_path}: has no config.json: is it the folder of a model?",)


def test_any_value_of_any_key_gives_a_figure_or_a_reason(tmp_path: Path) -> None:
    values: list[object] = ["x", -5, 0, 1e9, 10**12, True, float("nan"), float("inf"), [], {}, [[]], "\ud800", None]
    for value in values:
        for key in sorted(load_config("deepseek-v3")):
            (tmp_path / "config.json").write_text(json.dumps(load_config("deepseek-v3", **{key: value})))
            costs, reasons = read_folder_costs(tmp_path)
            figures = (costs.weight_bytes, costs.reads, costs.kv_cache, costs.attention, costs.precision)
            assert reasons or None not in figures, (value, key)
            assert all(len(reason) < 300 for reason in reasons), (value, key)
