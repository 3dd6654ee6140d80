"""Parameters of a model, counted from the shapes in its config.json."""

from dataclasses import dataclass
from typing import Final

from phasewatch.models.fields import MAX_LAYERS, JsonFields
from phasewatch.models.shape.architecture import Architecture
from phasewatch.models.shape.attention import AttentionLayers, read_attention_layers
from phasewatch.models.shape.recipes import RECIPES, Bias, Mixture, Norm, Placement, Recipe

_EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts")
_PER_TOKEN: Final = ("num_experts_per_tok", "num_experts_per_token", "top_k_experts")
"""Keys of one meaning: architectures differ in them, and newer files of one architecture from older ones."""


@dataclass(frozen=True, slots=True)
class ExpertParameters:
    """Experts of which a token uses some: `each` is the parameters of one, summed over the layers that hold them."""

    total: int
    per_token: int
    each: int


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """The parameters of a language model, by what becomes of them.

    Attributes:
        table: of the input, one row per word.
        head: of the output, the table itself if `tied`.
        tied: they are one.
        attention: matrices of attention.
        feed_forward: matrices of dense layers and of experts that every token passes.
        small: norms, biases and routers, which stay in 16 bits in every quantised format.
        experts: routed ones, None for a dense model.
    """

    table: int
    head: int
    tied: bool
    attention: int
    feed_forward: int
    small: int
    experts: ExpertParameters | None

    def dense(self) -> int:
        """Those that every step reads: all but the routed experts and a table that is not the head as well."""
        return self.head + self.attention + self.feed_forward + self.small

    def total(self) -> int:
        """All of them."""
        routed = 0 if self.experts is None else self.experts.total * self.experts.each
        return self.dense() + routed + (0 if self.tied else self.table)


def count_parameters(model: Architecture) -> ParameterCounts:
    """The parameters of a language model.

    Raises:
        ModelError: the file does not say, or the architecture is not one that is counted here.
    """
    fields = model.fields
    recipe = RECIPES.get(model.model_type)
    if recipe is None:
        raise fields.error("model_type", "the weights of this architecture are not counted from its config.json")
    layers, hidden = fields.require_int("num_hidden_layers", MAX_LAYERS), fields.require_int("hidden_size")
    head = fields.require_int("vocab_size") * hidden
    attention = small = 0
    for kind in read_attention_layers(model):
        matrices, rest = _latent(fields, kind) if kind.latent else _grouped(fields, recipe, kind)
        attention += kind.layers * matrices
        small += kind.layers * rest
    small += hidden * (recipe.layer_norms * layers + 1)
    if recipe.mixture is None:
        feed_forward = layers * 3 * hidden * fields.require_int("intermediate_size")
        small += layers * _feed_forward_bias(fields)
        experts = None
    else:
        feed_forward, routers, experts = _mixture(fields, recipe.mixture, layers)
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
    """How many experts a layer holds and how many of them a token is sent to; None for a dense model.

    Raises:
        ModelError: the file says one without the other, or what cannot be.
    """
    total, per_token = _one_of(fields, _EXPERTS), _one_of(fields, _PER_TOKEN)
    if total is None:
        return None
    if per_token is None:
        raise fields.error(_PER_TOKEN[0], "missing; expected a whole number above 0")
    if per_token > total:
        raise fields.error(_PER_TOKEN[0], f"{per_token} of only {total} experts")
    return total, per_token


def _one_of(fields: JsonFields, keys: tuple[str, ...]) -> int | None:
    told = {fields.get_count(key) for key in keys} - {0}
    if len(told) > 1:
        raise fields.error(keys[0], f"contradicts {' or '.join(keys[1:])}")
    return next(iter(told), None)


def _is_tied(model: Architecture) -> bool:
    told = model.read_tied_embeddings()
    if len(told) > 1:
        raise model.fields.error("tie_word_embeddings", "contradicts what the file says as a whole")
    return next(iter(told), model.fields.get("tie_word_embeddings") is True)


def _grouped(fields: JsonFields, recipe: Recipe, kind: AttentionLayers) -> tuple[int, int]:
    """Matrices of one layer of grouped-query attention, and the rest of it."""
    queries, keys, hidden = (
        kind.heads * kind.head_size,
        kind.key_heads * kind.head_size,
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
                small += 2 * kind.head_size
            case Norm.WIDTH:
                small += queries + keys
    if recipe.sinks:
        small += kind.heads
    return 2 * hidden * (queries + keys), small


def _latent(fields: JsonFields, kind: AttentionLayers) -> tuple[int, int]:
    """Matrices of one layer of latent attention, and its norms (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    hidden, rank = fields.require_int("hidden_size"), fields.require_int("kv_lora_rank")
    position, key, value = (fields.require_int(name) for name in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    if fields.get_bool("attention_bias", default=False):
        raise fields.error("attention_bias", "no such model of this architecture is known")
    queries = kind.heads * (key + position)
    query_rank = fields.get_int("q_lora_rank")
    matrices = hidden * (rank + position) + rank * kind.heads * (key + value) + kind.heads * value * hidden
    if query_rank is None:
        return matrices + hidden * queries, rank
    return matrices + query_rank * (hidden + queries), rank + query_rank


def _feed_forward_bias(fields: JsonFields) -> int:
    if not fields.get_bool("mlp_bias", default=False):
        return 0
    return 2 * fields.require_int("intermediate_size") + fields.require_int("hidden_size")


def _mixture(fields: JsonFields, mixture: Mixture, layers: int) -> tuple[int, int, ExpertParameters | None]:
    """Matrices that every token passes, routers, and the experts of a mixture."""
    hidden = fields.require_int("hidden_size")
    routed = read_routing(fields)
    if routed is None:
        raise fields.error(_EXPERTS[0], "missing; expected a whole number above 0")
    total, per_token = routed
    holding = _holding(fields, mixture.placement, layers)
    width = fields.require_int(mixture.width)
    each = 3 * hidden * width + (2 * width + hidden if mixture.expert_bias else 0)
    shared = 0
    if mixture.shared_width is not None:
        shared_count = 1 if mixture.shared_count is None else fields.get_count(mixture.shared_count)
        shared = shared_count and shared_count * fields.require_int(mixture.shared_width)
    dense_width = fields.require_int(mixture.dense_width) if holding < layers else 0
    router = total * (hidden + mixture.router_bias) + (hidden if mixture.shared_gate else 0)
    return (
        3 * hidden * (shared * holding + dense_width * (layers - holding)),
        router * holding,
        ExpertParameters(total, per_token, each * holding) if holding else None,
    )


def _holding(fields: JsonFields, placement: Placement, layers: int) -> int:
    """How many layers hold experts."""
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
            told = fields.get_ints("moe_layers")
            step = fields.require_int("interleave_moe_layer_step")
            return sum(0 <= index < layers for index in set(told)) if told else layers // step
