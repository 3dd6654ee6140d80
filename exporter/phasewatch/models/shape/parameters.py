"""Parameter counts of a model, computed from the shapes in its config.json."""

from dataclasses import dataclass
from typing import Final

from phasewatch.models.fields import MAX_LAYERS, JsonFields
from phasewatch.models.shape.architecture import Architecture
from phasewatch.models.shape.attention import AttentionLayers, read_attention_layers
from phasewatch.models.shape.recipes import RECIPES, Bias, Mixture, Norm, Placement, Recipe

_EXPERT_KEYS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
_EXPERTS_PER_TOKEN_KEYS: Final = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")
"""Synonymous keys: they differ between architectures, and between older and newer files of one architecture."""


@dataclass(frozen=True, slots=True)
class ExpertParameters:
    """Parameters of routed experts.

    Attributes:
        total: experts of a layer.
        per_token: experts that a token is routed to.
        each: parameters of one expert, summed over the layers with experts.
    """

    total: int
    per_token: int
    each: int


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Number of parameters of a language model, by their use.

    Attributes:
        table: input embedding, one row per token of the vocabulary.
        head: output head; the same parameters as the table if `tied`.
        tied: whether the table is the head.
        attention: matrices of attention.
        feed_forward: matrices of dense layers and of shared experts.
        small: norms, biases and routers, which stay in 16 bits in every quantised format.
        experts: routed experts; None for a dense model.
    """

    table: int
    head: int
    tied: bool
    attention: int
    feed_forward: int
    small: int
    experts: ExpertParameters | None

    def count_dense(self) -> int:
        """Parameters that every step reads: all but the routed experts and an untied table."""
        return self.head + self.attention + self.feed_forward + self.small

    def count_all(self) -> int:
        """All parameters."""
        routed = 0 if self.experts is None else self.experts.total * self.experts.each
        return self.count_dense() + routed + (0 if self.tied else self.table)


def count_parameters(model: Architecture) -> ParameterCounts:
    """Count the parameters of a language model.

    Raises:
        ModelError: a key is missing or wrong, or the architecture is not supported.
    """
    fields = model.fields
    recipe = RECIPES.get(model.model_type)
    if recipe is None:
        raise fields.error("model_type", "the weights of this architecture are not counted from its config.json")
    layers, hidden = fields.require_int("num_hidden_layers", MAX_LAYERS), fields.require_int("hidden_size")
    head = fields.require_int("vocab_size") * hidden
    attention = small = 0
    for group in read_attention_layers(model):
        matrices, rest = _count_latent(fields, group) if group.latent else _count_grouped_query(fields, recipe, group)
        attention += group.layers * matrices
        small += group.layers * rest
    small += hidden * (recipe.layer_norms * layers + 1)
    if recipe.mixture is None:
        feed_forward = layers * 3 * hidden * fields.require_int("intermediate_size")
        small += layers * _count_feed_forward_bias(fields)
        experts = None
    else:
        feed_forward, routers, experts = _count_mixture(fields, recipe.mixture, layers)
        small += routers
    return ParameterCounts(
        table=head,
        head=head,
        tied=_is_tied(model),
        attention=attention,
        feed_forward=feed_forward,
        small=small,
        experts=experts,
    )


def read_routing(fields: JsonFields) -> tuple[int, int] | None:
    """Number of experts of a layer, and of those that a token is routed to; None for a dense model.

    Raises:
        ModelError: one of the numbers is missing, or they contradict each other.
    """
    total, per_token = _read_synonyms(fields, _EXPERT_KEYS), _read_synonyms(fields, _EXPERTS_PER_TOKEN_KEYS)
    if total is None:
        return None
    if per_token is None:
        raise fields.error(_EXPERTS_PER_TOKEN_KEYS[0], "missing; expected a whole number above 0")
    if per_token > total:
        raise fields.error(_EXPERTS_PER_TOKEN_KEYS[0], f"{per_token} of only {total} experts")
    return total, per_token


def _read_synonyms(fields: JsonFields, keys: tuple[str, ...]) -> int | None:
    values = {fields.get_count(key) for key in keys} - {0}
    if len(values) > 1:
        raise fields.error(keys[0], f"contradicts {' or '.join(keys[1:])}")
    return next(iter(values), None)


def _is_tied(model: Architecture) -> bool:
    values = model.read_tied_embeddings()
    if len(values) > 1:
        raise model.fields.error("tie_word_embeddings", "contradicts what the file says as a whole")
    return next(iter(values), model.fields.get("tie_word_embeddings") is True)


def _count_grouped_query(fields: JsonFields, recipe: Recipe, group: AttentionLayers) -> tuple[int, int]:
    """Parameters of one layer of grouped-query attention: in matrices, and in biases, norms and sinks."""
    queries, keys, hidden = (
        group.heads * group.head_size,
        group.key_heads * group.head_size,
        fields.require_int("hidden_size"),
    )
    small = 0
    if recipe.always_biased or fields.get_bool("attention_bias", default=False):
        match recipe.bias:
            case Bias.INPUTS:
                small += queries + 2 * keys
            case Bias.ALL:
                small += queries + 2 * keys + hidden
            case Bias.NONE:
                raise fields.error("attention_bias", "no such model of this architecture is known")
    if not recipe.norm_by_key or fields.get_bool("use_qk_norm", default=False):
        match recipe.norm:
            case Norm.HEAD:
                small += 2 * group.head_size
            case Norm.WIDTH:
                small += queries + keys
    if recipe.sinks:
        small += group.heads
    return 2 * hidden * (queries + keys), small


def _count_latent(fields: JsonFields, group: AttentionLayers) -> tuple[int, int]:
    """Parameters of one layer of latent attention: in matrices, and in norms.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.
    """
    hidden, rank = fields.require_int("hidden_size"), fields.require_int("kv_lora_rank")
    position, key, value = (fields.require_int(name) for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    if fields.get_bool("attention_bias", default=False):
        raise fields.error("attention_bias", "no such model of this architecture is known")
    queries = group.heads * (key + position)
    query_rank = fields.get_int("q_lora_rank")
    matrices = hidden * (rank + position) + rank * group.heads * (key + value) + group.heads * value * hidden
    if query_rank is None:
        return matrices + hidden * queries, rank
    return matrices + query_rank * (hidden + queries), rank + query_rank


def _count_feed_forward_bias(fields: JsonFields) -> int:
    if not fields.get_bool("mlp_bias", default=False):
        return 0
    return 2 * fields.require_int("intermediate_size") + fields.require_int("hidden_size")


def _count_mixture(fields: JsonFields, mixture: Mixture, layers: int) -> tuple[int, int, ExpertParameters | None]:
    """Parameters of the feed-forward layers of a mixture: matrices of every token, routers, and routed experts."""
    hidden = fields.require_int("hidden_size")
    routed = read_routing(fields)
    if routed is None:
        raise fields.error(_EXPERT_KEYS[0], "missing; expected a whole number above 0")
    total, per_token = routed
    expert_layers = _count_expert_layers(fields, mixture.placement, layers)
    width = fields.require_int(mixture.width)
    each = 3 * hidden * width + (2 * width + hidden if mixture.expert_bias else 0)
    shared = 0
    if mixture.shared_width is not None:
        shared_count = 1 if mixture.shared_count is None else fields.get_count(mixture.shared_count)
        shared = shared_count and shared_count * fields.require_int(mixture.shared_width)
    dense_width = fields.require_int(mixture.dense_width) if expert_layers < layers else 0
    router = total * (hidden + mixture.router_bias) + (hidden if mixture.shared_gate else 0)
    return (
        3 * hidden * (shared * expert_layers + dense_width * (layers - expert_layers)),
        router * expert_layers,
        ExpertParameters(total, per_token, each * expert_layers) if expert_layers else None,
    )


def _count_expert_layers(fields: JsonFields, placement: Placement, layers: int) -> int:
    """Number of layers with experts."""
    match placement:
        case Placement.EVERY:
            return layers
        case Placement.STEP:
            step = fields.get_int("decoder_sparse_step") or 1
            dense = frozenset(fields.get_ints("mlp_only_layers"))
            return sum((index + 1) % step == 0 and index not in dense for index in range(layers))
        case Placement.AFTER_FIRST:
            step = fields.get_int("moe_layer_freq") or 1
            return sum(index % step == 0 for index in range(fields.get_count("first_k_dense_replace"), layers))
        case Placement.INTERLEAVED:
            listed = fields.get_ints("moe_layers")
            step = fields.require_int("interleave_moe_layer_step")
            return sum(0 <= index < layers for index in set(listed)) if listed else layers // step
