# SPDX-License-Identifier: Apache-2.0
"""Ladder Residual (arXiv 2501.06589) and FarSkip (2511.11505) for transformers 4.57 and newer, written by ladderscope.

Load with AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True). `ladder_layers` or `farskip_layers`
in config.json names the layers: a number of last layers, or a list.
"""

from transformers import (
    DeepseekV2ForCausalLM,
    DeepseekV3ForCausalLM,
    Dots1ForCausalLM,
    GptOssForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    MixtralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    Qwen3MoeForCausalLM,
)


def first(output):
    return output[0] if isinstance(output, tuple) else output


class WiredLayer:
    """A decoder layer some of whose outputs join the residual late."""

    def read(self, x, stale):
        """The residual with all but the newest `stale` outputs."""
        while len(self.late) > stale:
            x = x + self.late.pop(0).to(x.device)
        return x

    def forward(self, hidden_states, **kwargs):
        if self.index == 0:
            self.late.clear()
        x = self.wired(hidden_states, kwargs)
        return self.read(x, 0) if self.is_last else x

    def attention(self, x, arguments):
        return first(self.self_attn(self.input_layernorm(x), **arguments))

    def feed_forward(self, x):
        # experts have another name in Mixtral of transformers 4
        mlp = self.mlp if hasattr(self, "mlp") else self.block_sparse_moe
        return first(mlp(self.post_attention_layernorm(x)))


class LadderLayer(WiredLayer):
    """The newest output joins one module late."""

    def wired(self, x, arguments):
        x = self.read(x, int(self.is_chosen))
        self.late.append(self.attention(x, arguments))
        x = self.read(x, int(self.is_chosen))
        self.late.append(self.feed_forward(x))
        return x


class FarSkipLayer(WiredLayer):
    """Experts do not read attention of their layer, nor attention the routed experts of a chosen layer before."""

    def wired(self, x, arguments):
        if not self.is_chosen:
            x = self.read(x, 0)
            x = x + self.attention(x, arguments)
            return x + self.feed_forward(x)
        attention = self.attention(x, arguments)
        x = self.read(x, 0)
        output = self.feed_forward(x)
        x = x + attention
        mlp = self.mlp if hasattr(self, "mlp") else self.block_sparse_moe
        if not hasattr(mlp, "experts"):
            return x + output
        self.late.append(output)
        return x + self.shared.pop() if self.shared else x

    def keep_shared(self, module, inputs, output):
        """Hook of shared experts: takes their output out of the sum with the routed experts'."""
        self.shared.append(output)
        return output * 0


class Ladder:
    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        layers, late = self.model.layers, []
        is_farskip = getattr(config, "farskip_layers", None) is not None
        chosen = config.farskip_layers if is_farskip else config.ladder_layers
        if isinstance(chosen, int):
            chosen = range(len(layers) - chosen, len(layers))
        for index, layer in enumerate(layers):
            # the name stays: device maps know layers by it
            wired = FarSkipLayer if is_farskip else LadderLayer
            layer.__class__ = type(type(layer).__name__, (wired, type(layer)), {})
            layer.index, layer.is_last, layer.late = index, index + 1 == len(layers), late
            layer.is_chosen, layer.shared = index in chosen, []
            shared = getattr(getattr(layer, "mlp", None), "shared_experts", None)
            if is_farskip and layer.is_chosen and shared is not None:
                shared.register_forward_hook(layer.keep_shared)


class LadderLlamaForCausalLM(Ladder, LlamaForCausalLM):
    pass


class LadderMistralForCausalLM(Ladder, MistralForCausalLM):
    pass


class LadderQwen2ForCausalLM(Ladder, Qwen2ForCausalLM):
    pass


class LadderQwen3ForCausalLM(Ladder, Qwen3ForCausalLM):
    pass


class LadderMixtralForCausalLM(Ladder, MixtralForCausalLM):
    pass


class LadderQwen3MoeForCausalLM(Ladder, Qwen3MoeForCausalLM):
    pass


class LadderDots1ForCausalLM(Ladder, Dots1ForCausalLM):
    pass


class LadderGptOssForCausalLM(Ladder, GptOssForCausalLM):
    pass


class LadderDeepseekV2ForCausalLM(Ladder, DeepseekV2ForCausalLM):
    pass


class LadderDeepseekV3ForCausalLM(Ladder, DeepseekV3ForCausalLM):
    pass
