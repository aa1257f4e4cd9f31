# SPDX-License-Identifier: Apache-2.0
"""Ladder Residual (arXiv 2501.06589) for transformers 4.57 and newer, written by ladderscope.

Load with AutoModelForCausalLM.from_pretrained(directory, trust_remote_code=True). `ladder_layers` in config.json
names the layers whose modules read the residual without the newest output: a number of last layers, or a list.
"""

from transformers import (
    DeepseekV2ForCausalLM,
    DeepseekV3ForCausalLM,
    GptOssForCausalLM,
    LlamaForCausalLM,
    MistralForCausalLM,
    MixtralForCausalLM,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
    Qwen3MoeForCausalLM,
)


class LadderLayer:
    """A decoder layer whose newest output joins the residual one module late."""

    def forward(self, hidden_states, **kwargs):
        x, late = hidden_states, self.late
        if self.index == 0:
            late.clear()
        # experts have another name in Mixtral of transformers 4
        mlp = self.mlp if hasattr(self, "mlp") else self.block_sparse_moe
        for norm, module, arguments in (
            (self.input_layernorm, self.self_attn, kwargs),
            (self.post_attention_layernorm, mlp, {}),
        ):
            while len(late) > self.stale:
                x = x + late.pop(0).to(x.device)
            output = module(norm(x), **arguments)
            late.append(output[0] if isinstance(output, tuple) else output)
        while late and self.is_last:
            x = x + late.pop(0).to(x.device)
        return x


class Ladder:
    def __init__(self, config, *args, **kwargs):
        super().__init__(config, *args, **kwargs)
        layers, late = self.model.layers, []
        chosen = config.ladder_layers
        if isinstance(chosen, int):
            chosen = range(len(layers) - chosen, len(layers))
        for index, layer in enumerate(layers):
            # the name stays: device maps know layers by it
            layer.__class__ = type(type(layer).__name__, (LadderLayer, type(layer)), {})
            layer.index, layer.is_last, layer.late = index, index + 1 == len(layers), late
            layer.stale = int(index in chosen)


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


class LadderGptOssForCausalLM(Ladder, GptOssForCausalLM):
    pass


class LadderDeepseekV2ForCausalLM(Ladder, DeepseekV2ForCausalLM):
    pass


class LadderDeepseekV3ForCausalLM(Ladder, DeepseekV3ForCausalLM):
    pass
