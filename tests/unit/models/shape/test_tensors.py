import re

from phasewatch.models.shape.tensors import ModelStructure, Tensor, compute_reads, sum_bytes
from tests.support.model_folders import refusal

DENSE = ModelStructure(layers=2)
TABLE = Tensor("model.embed_tokens.weight", (100, 10), 2000.0, 1000)
HEAD = Tensor("lm_head.weight", (100, 10), 2000.0, 1000)
LAYER = Tensor("model.layers.0.self_attn.q_proj.weight", (10, 10), 200.0, 100)


def named(name: str, size: float = 1.0, *shape: int) -> Tensor:
    return Tensor(name, shape, size, int(size))


def unread(name: str, structure: ModelStructure = DENSE) -> bool:
    return compute_reads([TABLE, LAYER, named(name, 7.0)], structure).dense_bytes == 2200


def test_an_input_embedding_beside_an_output_head_is_not_read() -> None:
    reads = compute_reads([TABLE, HEAD, LAYER], DENSE)
    assert (reads.dense_bytes, reads.dense_parameters, reads.head_parameters) == (2200, 1100, 1000)
    assert sum_bytes([TABLE, HEAD, LAYER]) == 4200


def test_a_tied_embedding_is_read_once() -> None:
    for structure in (DENSE, ModelStructure(layers=2, tied=True)):
        reads = compute_reads([TABLE, LAYER], structure)
        assert (reads.dense_bytes, reads.head_parameters) == (2200, 1000)


def test_embeddings_and_heads_have_many_names() -> None:
    cases = [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("token_embd.weight", "output.weight"),
        ("tok_embeddings.weight", "output.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("backbone.embeddings.weight", "lm_head.qweight"),
    ]
    for table, head in cases:
        assert compute_reads([named(table, 3.0), named(head, 5.0)], DENSE).head_parameters == 5, (table, head)
        assert compute_reads([named(table, 3.0)], DENSE).head_parameters == 3, (table, head)


def test_towers_speculative_layers_and_row_embeddings_are_not_read() -> None:
    cases = [
        "vision_tower.encoder.layers.0.q_proj.weight",
        "model.visual.blocks.0.attn.qkv.weight",
        "multi_modal_projector.linear.weight",
        "audio_tower.layers.0.fc1.weight",
        "v.blk.0.attn_q.weight",
        "mm.input_projection.weight",
        "a.conv1d.1.weight",
        "mtp.layers.0.self_attn.q_proj.weight",
        "mtp.fc.weight",
        "blk.1.nextn.eh_proj.weight",
        "model.layers.2.self_attn.q_proj.weight",
        "model.layers.2.embed_tokens.weight",
        "blk.2.attn_q.weight",
        "per_layer_token_embd.weight",
        "model.embed_tokens_per_layer.weight",
        "transformer.wpe.weight",
    ]
    for name in cases:
        assert unread(name), name


def test_all_other_tensors_are_read() -> None:
    cases = [
        "model.layers.1.self_attn.q_proj.weight",
        "model.layers.1.mlp.shared_experts.up_proj.weight",
        "model.layers.1.mlp.shared_expert_gate.weight",
        "blk.1.attn_output.weight",
        "blk.1.ffn_gate_shexp.weight",
        "blk.1.ffn_gate_inp.weight",
        "output_norm.weight",
        "rope_freqs.weight",
        "model.norm.weight",
        "model.layers.1.attention.output.dense.weight",
    ]
    for name in cases:
        assert not unread(name), name


def test_tensors_beside_a_language_model_belong_to_towers() -> None:
    text = "language_model.model."
    tensors = [
        named(f"{text}embed_tokens.weight", 3.0),
        named(f"{text}layers.0.mlp.up_proj.weight", 5.0),
        named("language_model.lm_head.weight", 7.0),
        named("strange_camera.layers.0.weight", 100.0),
    ]
    assert compute_reads(tensors, DENSE).dense_bytes == 12
    newer = [named("model.language_model.embed_tokens.weight", 3.0), named("lm_head.weight", 7.0), tensors[-1]]
    assert compute_reads(newer, DENSE).dense_bytes == 7


MIXTURE = ModelStructure(layers=2, experts=4, per_token=2)


def test_experts_are_counted_one_by_one_or_fused() -> None:
    cases: list[list[Tensor]] = [
        [named(f"model.layers.0.mlp.experts.{index}.up_proj.weight", 10.0) for index in range(4)],
        [named("model.layers.0.mlp.experts.gate_up_proj", 40.0, 4, 5, 2)],
        [named("blk.0.ffn_up_exps.weight", 40.0, 2, 5, 4)],
        [named(f"blk.0.ffn_up.{index}.weight", 10.0) for index in range(4)],
        [named(f"model.layers.0.block_sparse_moe.experts.{index}.w1.weight", 10.0) for index in range(4)],
    ]
    for experts in cases:
        reads = compute_reads([TABLE, *experts], MIXTURE)
        (group,) = reads.experts
        assert (group.total, group.per_token, group.bytes_each, group.parameters_each) == (4, 2, 10, 10), experts
        assert reads.dense_bytes == 2000, experts
        assert reads.compute_bytes_per_step() == 2020, experts


def test_experts_of_speculative_layers_are_not_read() -> None:
    beyond = named("model.layers.2.mlp.experts.gate_up_proj", 40.0, 4, 5, 2)
    used = named("model.layers.1.mlp.experts.gate_up_proj", 80.0, 4, 5, 4)
    assert compute_reads([TABLE, used, beyond], MIXTURE).experts[0].bytes_each == 20


def test_a_scale_for_all_experts_is_read_by_every_step() -> None:
    scale = Tensor("model.layers.0.mlp.experts.gate_up_proj_input_scale", (), 4.0, 0)
    used = named("model.layers.0.mlp.experts.gate_up_proj", 40.0, 4, 5, 2)
    assert compute_reads([TABLE, used, scale], MIXTURE).dense_bytes == 2004


def test_packed_tensors_have_known_bytes_and_unknown_parameters() -> None:
    packed = Tensor("model.layers.0.mlp.up_proj.qweight", (10, 2), 80.0, None)
    reads = compute_reads([TABLE, packed], DENSE)
    assert (reads.dense_bytes, reads.dense_parameters, reads.head_parameters) == (2080, None, 1000)
    experts = Tensor("model.layers.0.mlp.experts.gate_up_proj_blocks", (4, 2), 80.0, None)
    assert compute_reads([TABLE, experts], MIXTURE).experts[0].parameters_each is None


def test_tensors_that_contradict_the_structure_are_refused() -> None:
    cases: list[tuple[list[Tensor], ModelStructure, str]] = [
        ([LAYER], DENSE, "no tensor is named as an input table or an output head"),
        ([named("lm_head.weight", 0.0), LAYER], DENSE, "no tensor is named as an input table or an output head"),
        ([TABLE, LAYER], ModelStructure(2, tied=False), "the tensors have no output head"),
        ([TABLE, LAYER], MIXTURE, "the shapes tell of experts, the tensors do not"),
        ([TABLE, named("blk.0.ffn_up_exps.weight", 4.0, 4)], DENSE, "the tensors tell of experts, the shapes do not"),
        (
            [TABLE, named("model.layers.0.mlp.experts.4.up_proj.weight")],
            MIXTURE,
            "'model.layers.0.mlp.experts.4.up_proj.weight': there are only 4 experts",
        ),
        (
            [TABLE, named("model.layers.0.ffn.experts.mlp.w1", 20.0, 10, 2)],
            MIXTURE,
            r"'model.layers.0.ffn.experts.mlp.w1': expected a dimension of 4 experts in \(10, 2\)",
        ),
    ]
    for tensors, structure, expected in cases:
        assert re.search(f"^{expected}", refusal(compute_reads, tensors, structure)), (tensors, structure)
