"""What the families of `tiny_gguf` are made of: tensors per layer and metadata (docs/targets.md §3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

Shapes = Iterator[tuple[str, tuple[int, ...]]]
Keys = dict[str, tuple[str, object]]

N_EXPERTS, N_USED = 6, 2
WINDOW = 16


@dataclass(frozen=True)
class Sizes:
    """Sizes of a tiny model.

    Attributes:
        n_layer: Layers.
        width: n_embd; also the inner width of an expert.
        n_head: Query heads.
        n_head_kv: Key/value heads.
        head_size: Elements of a head.
        n_ff: Feed-forward width.
        n_vocab: Tokens.
    """

    n_layer: int
    width: int
    n_head: int
    n_head_kv: int
    head_size: int
    n_ff: int
    n_vocab: int

    @property
    def q_width(self) -> int:
        return self.n_head * self.head_size

    @property
    def kv_width(self) -> int:
        return self.n_head_kv * self.head_size

    @property
    def delta_heads(self) -> tuple[int, int, int]:
        """Key heads, value heads and their size: as many values as the model is wide."""
        return 2, 4, self.width // 4


def no_shapes(sizes: Sizes) -> Shapes:
    yield from ()


def no_keys(sizes: Sizes) -> Keys:
    return {}


@dataclass(frozen=True)
class Architecture:
    """A family.

    Attributes:
        layer: Shapes of layer i without its prefix, torch order.
        top: Shapes that the family has beside embedding, norm and head.
        metadata: Keys that it has beside the common ones, without prefix.
    """

    layer: Callable[[Sizes, int], Shapes]
    top: Callable[[Sizes], Shapes] = no_shapes
    metadata: Callable[[Sizes], Keys] = no_keys


def attention(sizes: Sizes, *, biases: bool = False, head_norms: bool = False) -> Shapes:
    yield "attn_norm.weight", (sizes.width,)
    yield "attn_q.weight", (sizes.q_width, sizes.width)
    yield "attn_k.weight", (sizes.kv_width, sizes.width)
    yield "attn_v.weight", (sizes.kv_width, sizes.width)
    yield "attn_output.weight", (sizes.width, sizes.q_width)
    if biases:
        yield "attn_q.bias", (sizes.q_width,)
        yield "attn_k.bias", (sizes.kv_width,)
        yield "attn_v.bias", (sizes.kv_width,)
    if head_norms:
        yield "attn_q_norm.weight", (sizes.head_size,)
        yield "attn_k_norm.weight", (sizes.head_size,)


def feed_forward(sizes: Sizes, suffix: str = "") -> Shapes:
    yield f"ffn_gate{suffix}.weight", (sizes.n_ff, sizes.width)
    yield f"ffn_up{suffix}.weight", (sizes.n_ff, sizes.width)
    yield f"ffn_down{suffix}.weight", (sizes.width, sizes.n_ff)


def experts(sizes: Sizes, *, biases: bool = False, n_ff: int | None = None) -> Shapes:
    n, width, inner = N_EXPERTS, sizes.width, n_ff or sizes.width
    yield "ffn_gate_inp.weight", (n, width)
    for part in ("gate", "up"):
        yield f"ffn_{part}_exps.weight", (n, inner, width)
    yield "ffn_down_exps.weight", (n, width, inner)
    if biases:
        yield "ffn_gate_inp.bias", (n,)
        for part in ("gate", "up", "down"):
            yield f"ffn_{part}_exps.bias", (n, width)


def expert_keys(sizes: Sizes) -> Keys:
    return {
        "expert_count": ("u32", N_EXPERTS),
        "expert_used_count": ("u32", N_USED),
        "expert_feed_forward_length": ("u32", sizes.width),
    }


def dense_layer(
    *, biases: bool = False, head_norms: bool = False, post_norms: bool = False, is_joined: bool = False
) -> Callable[[Sizes, int], Shapes]:
    def shapes(sizes: Sizes, index: int) -> Shapes:
        yield from attention(sizes, biases=biases, head_norms=head_norms)
        if post_norms:
            yield "post_attention_norm.weight", (sizes.width,)
            yield "post_ffw_norm.weight", (sizes.width,)
        yield "ffn_norm.weight", (sizes.width,)
        yield from joined_feed_forward(sizes) if is_joined else feed_forward(sizes)

    return shapes


def joined_feed_forward(sizes: Sizes) -> Shapes:
    yield "ffn_up.weight", (2 * sizes.n_ff, sizes.width)
    yield "ffn_down.weight", (sizes.width, sizes.n_ff)


def without(layer: Callable[[Sizes, int], Shapes], *names: str) -> Callable[[Sizes, int], Shapes]:
    return lambda sizes, index: ((name, shape) for name, shape in layer(sizes, index) if name not in names)


def phi3_layer(sizes: Sizes, index: int) -> Shapes:
    yield "attn_qkv.weight", (sizes.q_width + 2 * sizes.kv_width, sizes.width)
    yield from without(dense_layer(is_joined=True), "attn_q.weight", "attn_k.weight", "attn_v.weight")(sizes, index)


def phi3_top(sizes: Sizes) -> Shapes:
    yield "rope_factors_long.weight", (sizes.head_size // 2,)
    yield "rope_factors_short.weight", (sizes.head_size // 2,)


def phi3_keys(sizes: Sizes) -> Keys:
    return {
        "rope.scaling.original_context_length": ("u32", 32),
        "rope.scaling.attn_factor": ("f32", 1.25),
        "attention.sliding_window": ("u32", 0),
    }


post_norm_layer = without(dense_layer(post_norms=True), "attn_norm.weight", "ffn_norm.weight")


def olmo2_layer(sizes: Sizes, index: int) -> Shapes:
    yield from post_norm_layer(sizes, index)
    yield "attn_q_norm.weight", (sizes.q_width,)
    yield "attn_k_norm.weight", (sizes.kv_width,)


def exaone4_layer(sizes: Sizes, index: int) -> Shapes:
    yield from post_norm_layer(sizes, index)
    yield "attn_q_norm.weight", (sizes.head_size,)
    yield "attn_k_norm.weight", (sizes.head_size,)


def granite_keys(sizes: Sizes) -> Keys:
    return {
        "attention.scale": ("f32", 0.2),
        "embedding_scale": ("f32", 2.5),
        "residual_scale": ("f32", 0.4),
        "logit_scale": ("f32", 2.0),
    }


def shared_expert(sizes: Sizes) -> Shapes:
    yield "ffn_gate_shexp.weight", (sizes.width, sizes.width)
    yield "ffn_up_shexp.weight", (sizes.width, sizes.width)
    yield "ffn_down_shexp.weight", (sizes.width, sizes.width)


def granitemoe_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes)
    yield "ffn_norm.weight", (sizes.width,)
    yield from experts(sizes, n_ff=sizes.n_ff)  # as wide as a dense feed-forward would be
    yield from shared_expert(sizes)


def granitemoe_keys(sizes: Sizes) -> Keys:
    return granite_keys(sizes) | {
        "expert_count": ("u32", N_EXPERTS),
        "expert_used_count": ("u32", N_USED),
        "expert_shared_feed_forward_length": ("u32", sizes.width),
    }


def glm4_keys(sizes: Sizes) -> Keys:
    return {"rope.dimension_count": ("u32", sizes.head_size // 2)}


def qwen2moe_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes, biases=True)
    yield "ffn_norm.weight", (sizes.width,)
    yield from experts(sizes)
    yield "ffn_gate_inp_shexp.weight", (sizes.width,)
    yield from feed_forward(sizes, "_shexp")


def qwen2moe_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {"expert_shared_feed_forward_length": ("u32", sizes.n_ff)}


def cohere2_keys(sizes: Sizes) -> Keys:
    return {
        "attention.layer_norm_epsilon": ("f32", 1e-5),
        "attention.sliding_window": ("u32", WINDOW),
        "logit_scale": ("f32", 0.25),
        "rope.scaling.type": ("str", "none"),
    }


def mistral3_keys(sizes: Sizes) -> Keys:
    return {
        "attention.temperature_scale": ("f32", 0.5),
        "rope.scaling.type": ("str", "yarn"),
        "rope.scaling.factor": ("f32", 8.0),
        "rope.scaling.original_context_length": ("u32", 16),
        "rope.scaling.yarn_beta_fast": ("f32", 4.0),
        "rope.scaling.yarn_log_multiplier": ("f32", 1.0),
    }


def ernie_moe_layer(sizes: Sizes, index: int) -> Shapes:
    if index == 0:
        yield from dense_layer()(sizes, index)
        return
    yield from attention(sizes)
    yield "ffn_norm.weight", (sizes.width,)
    yield from experts(sizes)
    yield "exp_probs_b.bias", (N_EXPERTS,)
    yield from shared_expert(sizes)


def ernie_moe_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {
        "leading_dense_block_count": ("u32", 1),
        "interleave_moe_layer_step": ("u32", 1),
        "expert_shared_count": ("u32", 1),
        "expert_shared_feed_forward_length": ("u32", sizes.width),
    }


def starcoder2_layer(sizes: Sizes, index: int) -> Shapes:
    for name, shape in without(dense_layer(biases=True), "ffn_gate.weight")(sizes, index):
        yield name, shape
        if name in ("attn_norm.weight", "ffn_norm.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight"):
            yield name.replace("weight", "bias"), shape[:1]


def starcoder2_top(sizes: Sizes) -> Shapes:
    yield "output_norm.bias", (sizes.width,)


def starcoder2_keys(sizes: Sizes) -> Keys:
    return {"attention.layer_norm_epsilon": ("f32", 1e-5)}


def llama4_layer(sizes: Sizes, index: int) -> Shapes:
    if index % 2 == 0:
        yield from dense_layer()(sizes, index)
        return
    yield from attention(sizes)
    yield "ffn_norm.weight", (sizes.width,)
    yield from experts(sizes)
    yield from shared_expert(sizes)


def llama4_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {"expert_used_count": ("u32", 1), "interleave_moe_layer_step": ("u32", 2)}


def gemma2_keys(sizes: Sizes) -> Keys:
    return {
        "attention.sliding_window": ("u32", WINDOW),
        "attn_logit_softcapping": ("f32", 5.0),
        "final_logit_softcapping": ("f32", 6.0),
    }


def olmo2_keys(sizes: Sizes) -> Keys:
    return {"attention.sliding_window": ("u32", WINDOW)}


def qwen3moe_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes, head_norms=True)
    yield "ffn_norm.weight", (sizes.width,)
    yield from experts(sizes)


def gpt_oss_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes, biases=True)
    yield "attn_output.bias", (sizes.width,)
    yield "attn_sinks.weight", (sizes.n_head,)
    yield "post_attention_norm.weight", (sizes.width,)
    yield from experts(sizes, biases=True)


def gpt_oss_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {
        "attention.sliding_window": ("u32", WINDOW),
        "rope.scaling.type": ("str", "yarn"),
        "rope.scaling.factor": ("f32", 8.0),
        "rope.scaling.original_context_length": ("u32", 32),
    }


def glm4moe_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes, biases=True, head_norms=True)
    yield "post_attention_norm.weight", (sizes.width,)
    if index == 0:
        yield from feed_forward(sizes)
        return
    yield from experts(sizes)
    yield "exp_probs_b.bias", (N_EXPERTS,)
    yield "ffn_gate_shexp.weight", (sizes.width, sizes.width)
    yield "ffn_up_shexp.weight", (sizes.width, sizes.width)
    yield "ffn_down_shexp.weight", (sizes.width, sizes.width)


def glm4moe_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {
        "expert_shared_count": ("u32", 1),
        "leading_dense_block_count": ("u32", 1),
        "expert_gating_func": ("u32", 2),
        "expert_weights_scale": ("f32", 1.5),
        "expert_weights_norm": ("bool", True),
        "rope.dimension_count": ("u32", sizes.head_size // 2),
    }


def latent_sizes(sizes: Sizes) -> tuple[int, int, int, int]:
    """Elements of the latent vector, rotated and plain ones of a key head, elements of a value head."""
    return sizes.width, sizes.width // 2, sizes.width // 2, sizes.head_size


def deepseek2_layer(sizes: Sizes, index: int) -> Shapes:
    """Queries are made from half the width."""
    latent, rotated, plain, value = latent_sizes(sizes)
    half, n_head = sizes.width // 2, sizes.n_head
    yield "attn_norm.weight", (sizes.width,)
    yield "attn_q_a.weight", (half, sizes.width)
    yield "attn_q_a_norm.weight", (half,)
    yield "attn_q_b.weight", (n_head * (plain + rotated), half)
    yield "attn_kv_a_mqa.weight", (latent + rotated, sizes.width)
    yield "attn_kv_a_norm.weight", (latent,)
    yield "attn_k_b.weight", (n_head, latent, plain)
    yield "attn_v_b.weight", (n_head, value, latent)
    yield "attn_output.weight", (sizes.width, n_head * value)
    yield "ffn_norm.weight", (sizes.width,)
    if index == 0:
        yield from feed_forward(sizes)
        return
    yield from experts(sizes)
    yield "exp_probs_b.bias", (N_EXPERTS,)
    for part in ("gate", "up", "down"):
        yield f"ffn_{part}_shexp.weight", (sizes.width, sizes.width)


def deepseek2_keys(sizes: Sizes) -> Keys:
    latent, rotated, plain, value = latent_sizes(sizes)
    return glm4moe_keys(sizes) | {
        "attention.head_count_kv": ("u32", 1),
        "attention.q_lora_rank": ("u32", sizes.width // 2),
        "attention.kv_lora_rank": ("u32", latent),
        "attention.key_length": ("u32", latent + rotated),
        "attention.value_length": ("u32", latent),
        "attention.key_length_mla": ("u32", plain + rotated),
        "attention.value_length_mla": ("u32", value),
        "expert_group_count": ("u32", 3),
        "expert_group_used_count": ("u32", 2),
        "rope.dimension_count": ("u32", rotated),
        "rope.scaling.type": ("str", "yarn"),
        "rope.scaling.factor": ("f32", 8.0),
        "rope.scaling.original_context_length": ("u32", 32),
        "rope.scaling.yarn_log_multiplier": ("f32", 0.1),
    }


def hy_v3_layer(sizes: Sizes, index: int) -> Shapes:
    yield from attention(sizes, head_norms=True)
    yield "ffn_norm.weight", (sizes.width,)
    if index == 0:
        yield from feed_forward(sizes)
        return
    yield from experts(sizes)
    yield "exp_probs_b", (N_EXPERTS,)
    yield from feed_forward(sizes, "_shexp")


def hy_v3_keys(sizes: Sizes) -> Keys:
    names = ("expert_gating_func", "expert_weights_scale", "expert_weights_norm")
    routing = {name: pair for name, pair in glm4moe_keys(sizes).items() if name in names}
    return expert_keys(sizes) | routing | {"expert_shared_feed_forward_length": ("u32", sizes.n_ff)}


def mimo2_layer(sizes: Sizes, index: int) -> Shapes:
    """Values are half as wide as keys; projections are fused, as MTP blocks have them; odd layers are dense."""
    value = sizes.head_size // 2
    yield "attn_norm.weight", (sizes.width,)
    yield "attn_qkv.weight", (sizes.q_width + sizes.kv_width + sizes.n_head_kv * value, sizes.width)
    yield "attn_output.weight", (sizes.width, sizes.n_head * value)
    yield "attn_sinks.weight", (sizes.n_head,)
    yield "ffn_norm.weight", (sizes.width,)
    if index % 2:
        yield from feed_forward(sizes)
        return
    yield from experts(sizes)
    yield "exp_probs_b.bias", (N_EXPERTS,)


def mimo2_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {
        "attention.value_length": ("u32", sizes.head_size // 2),
        "attention.value_scale": ("f32", 0.7),
        "attention.sliding_window": ("u32", WINDOW),
        "attention.sliding_window_pattern": ("[bool]", [i % 2 == 0 for i in range(sizes.n_layer)]),
        "rope.dimension_count": ("u32", sizes.head_size // 2),
        "rope.freq_base": ("f32", 1e6),
        "rope.freq_base_swa": ("f32", 1e4),
    }


def delta_net(sizes: Sizes) -> Shapes:
    n_keys, n_heads, size = sizes.delta_heads
    n_values, channels = n_heads * size, (2 * n_keys + n_heads) * size
    yield "attn_norm.weight", (sizes.width,)
    yield "attn_qkv.weight", (channels, sizes.width)
    yield "attn_gate.weight", (n_values, sizes.width)
    yield "ssm_beta.weight", (n_heads, sizes.width)
    yield "ssm_alpha.weight", (n_heads, sizes.width)
    yield "ssm_conv1d.weight", (channels, 4)
    yield "ssm_dt.bias", (n_heads,)
    yield "ssm_a", (n_heads,)
    yield "ssm_norm.weight", (size,)
    yield "ssm_out.weight", (sizes.width, n_values)


def gated_attention(sizes: Sizes) -> Shapes:
    for name, shape in attention(sizes, head_norms=True):
        yield name, (2 * sizes.q_width, sizes.width) if name == "attn_q.weight" else shape


def qwen35_layer(sizes: Sizes, index: int) -> Shapes:
    """Every second layer has attention."""
    yield from gated_attention(sizes) if index % 2 else delta_net(sizes)
    yield "post_attention_norm.weight", (sizes.width,)
    yield from feed_forward(sizes)


def qwen35moe_layer(sizes: Sizes, index: int) -> Shapes:
    yield from gated_attention(sizes) if index % 2 else delta_net(sizes)
    yield "post_attention_norm.weight", (sizes.width,)
    yield from experts(sizes)
    yield "ffn_gate_inp_shexp.weight", (sizes.width,)
    yield from feed_forward(sizes, "_shexp")


def qwen3next_layer(sizes: Sizes, index: int) -> Shapes:
    for name, shape in qwen35moe_layer(sizes, index):
        if name == "ssm_beta.weight":
            yield "ssm_ba.weight", (2 * shape[0], shape[1])
        elif name != "ssm_alpha.weight":
            yield name, shape


def qwen35_keys(sizes: Sizes) -> Keys:
    n_keys, n_heads, size = sizes.delta_heads
    return {
        "ssm.conv_kernel": ("u32", 4),
        "ssm.inner_size": ("u32", n_heads * size),
        "ssm.state_size": ("u32", size),
        "ssm.time_step_rank": ("u32", n_heads),
        "ssm.group_count": ("u32", n_keys),
        "full_attention_interval": ("u32", 2),
        "rope.dimension_sections": ("[i32]", [2, 1, 1, 0]),
        "rope.dimension_count": ("u32", sizes.head_size // 2),
    }


def qwen35moe_keys(sizes: Sizes) -> Keys:
    shared = {"expert_shared_feed_forward_length": ("u32", sizes.n_ff)}
    return qwen35_keys(sizes) | expert_keys(sizes) | shared


GEMMA4_SHARED = 2  # layers that read an earlier layer's keys and values, when there are more than three


def gemma4_layer(sizes: Sizes, index: int) -> Shapes:
    """Even layers slide, with heads half as wide; odd ones take values from keys. Every layer has all there is."""
    is_full, has_keys = index % 2 == 1, not gemma4_is_shared(sizes, index)
    head = sizes.head_size if is_full else sizes.head_size // 2
    yield "attn_norm.weight", (sizes.width,)
    yield "attn_q.weight", (sizes.n_head * head, sizes.width)
    if has_keys:
        yield "attn_k.weight", (sizes.n_head_kv * head, sizes.width)
        yield "attn_k_norm.weight", (head,)
    if has_keys and not is_full:
        yield "attn_v.weight", (sizes.n_head_kv * head, sizes.width)
    yield "attn_q_norm.weight", (head,)
    yield "attn_output.weight", (sizes.width, sizes.n_head * head)
    for name in ("post_attention_norm", "ffn_norm", "post_ffw_norm", "pre_ffw_norm_2", "post_ffw_norm_1"):
        yield f"{name}.weight", (sizes.width,)
    yield "post_ffw_norm_2.weight", (sizes.width,)
    yield "layer_output_scale.weight", (1,)
    yield from feed_forward(sizes)
    yield "ffn_gate_inp.weight", (N_EXPERTS, sizes.width)
    yield "ffn_gate_inp.scale", (sizes.width,)
    yield "ffn_gate_up_exps.weight", (N_EXPERTS, 2 * sizes.width, sizes.width)
    yield "ffn_down_exps.weight", (N_EXPERTS, sizes.width, sizes.width)
    yield "ffn_down_exps.scale", (N_EXPERTS,)
    yield "inp_gate.weight", (sizes.width, sizes.width)
    yield "proj.weight", (sizes.width, sizes.width)
    yield "post_norm.weight", (sizes.width,)


def gemma4_is_shared(sizes: Sizes, index: int) -> bool:
    return sizes.n_layer > 3 and index >= sizes.n_layer - GEMMA4_SHARED


def gemma4_top(sizes: Sizes) -> Shapes:
    total = sizes.n_layer * sizes.width
    yield "rope_freqs.weight", (sizes.head_size // 2,)
    yield "per_layer_token_embd.weight", (sizes.n_vocab, total)
    yield "per_layer_model_proj.weight", (total, sizes.width)
    yield "per_layer_proj_norm.weight", (sizes.width,)


def gemma4_keys(sizes: Sizes) -> Keys:
    return expert_keys(sizes) | {
        "attention.sliding_window": ("u32", WINDOW),
        "attention.sliding_window_pattern": ("[bool]", [i % 2 == 0 for i in range(sizes.n_layer)]),
        "attention.key_length_swa": ("u32", sizes.head_size // 2),
        "attention.value_length_swa": ("u32", sizes.head_size // 2),
        "attention.shared_kv_layers": ("u32", GEMMA4_SHARED if sizes.n_layer > 3 else 0),
        "rope.dimension_count_swa": ("u32", sizes.head_size // 2),
        "rope.freq_base": ("f32", 1e6),
        "embedding_length_per_layer_input": ("u32", sizes.width),
    }


def gemma3_keys(sizes: Sizes) -> Keys:
    return {
        "attention.sliding_window": ("u32", WINDOW),
        "attention.sliding_window_pattern": ("u32", 2),  # layers 0, 2, … slide
    }


ARCHITECTURES = {
    "llama": Architecture(dense_layer()),
    "qwen2": Architecture(dense_layer(biases=True)),
    "qwen3": Architecture(dense_layer(head_norms=True)),
    "gemma3": Architecture(dense_layer(head_norms=True, post_norms=True), metadata=gemma3_keys),
    "qwen3moe": Architecture(qwen3moe_layer, metadata=expert_keys),
    "gpt-oss": Architecture(gpt_oss_layer, metadata=gpt_oss_keys),
    "glm4moe": Architecture(glm4moe_layer, metadata=glm4moe_keys),
    "deepseek2": Architecture(deepseek2_layer, metadata=deepseek2_keys),
    "hy_v3": Architecture(hy_v3_layer, metadata=hy_v3_keys),
    "mimo2": Architecture(mimo2_layer, metadata=mimo2_keys),
    "qwen35": Architecture(qwen35_layer, metadata=qwen35_keys),
    "qwen35moe": Architecture(qwen35moe_layer, metadata=qwen35moe_keys),
    "qwen3next": Architecture(qwen3next_layer, metadata=qwen35moe_keys),
    "gemma4": Architecture(gemma4_layer, gemma4_top, gemma4_keys),
    "gemma2": Architecture(dense_layer(post_norms=True), metadata=gemma2_keys),
    "phi3": Architecture(phi3_layer, phi3_top, phi3_keys),
    "olmo2": Architecture(olmo2_layer, metadata=olmo2_keys),
    "smollm3": Architecture(dense_layer()),
    "granite": Architecture(dense_layer(), metadata=granite_keys),
    "granitemoe": Architecture(granitemoe_layer, metadata=granitemoe_keys),
    "glm4": Architecture(dense_layer(biases=True, post_norms=True, is_joined=True), metadata=glm4_keys),
    "qwen2moe": Architecture(qwen2moe_layer, metadata=qwen2moe_keys),
    "exaone4": Architecture(exaone4_layer),
    "cohere2": Architecture(without(dense_layer(), "ffn_norm.weight"), metadata=cohere2_keys),
    "mistral3": Architecture(dense_layer(), metadata=mistral3_keys),
    "ernie4_5": Architecture(dense_layer()),
    "ernie4_5-moe": Architecture(ernie_moe_layer, metadata=ernie_moe_keys),
    "hunyuan-dense": Architecture(dense_layer(head_norms=True)),
    "starcoder2": Architecture(starcoder2_layer, starcoder2_top, starcoder2_keys),
    "llama4": Architecture(llama4_layer, metadata=llama4_keys),
}
