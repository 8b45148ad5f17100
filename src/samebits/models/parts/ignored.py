"""Keys and tensors that files of all architectures hold and that change no answer.

`models/unread.py` refuses everything else that a file states and the architecture does not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = str | int | float | bool
OFF: tuple[Value, ...] = (False, 0)
ON: tuple[Value, ...] = (True, 1)


@dataclass(frozen=True)
class Ignored:
    """Keys and tensors of one architecture that have no effect, beside those that all architectures ignore.

    hf         keys of a config.json that change no answer, whatever their value
    hf_only    keys of a config.json with the values that say what the model does anyway; other values are refused, also
               where a table that several architectures share reads the key
    hf_whole   keys beside "text_config" in the config.json of a model for images and text
    gguf       keys of GGUF metadata, without the architecture's prefix, that change no answer
    gguf_only  the same as `hf_only`, of GGUF metadata
    rope       keys of a config.json's object for the rotation
    tensors    regular expressions for whole names of tensors that change no answer
    """

    hf: frozenset[str] = frozenset()
    hf_only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    hf_whole: frozenset[str] = frozenset()
    gguf: frozenset[str] = frozenset()
    gguf_only: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    rope: frozenset[str] = frozenset()
    tensors: tuple[str, ...] = ()


def words(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


COMMON = Ignored(
    hf=words(
        # where the file comes from, and what software wrote it
        """
        _attn_implementation _attn_implementation_autoset _attn_implementation_internal _commit_hash
        _flash_attn_2_enabled _from_model_config _name_or_path architectures attn_implementation auto_map
        custom_pipelines dtype finetuning_task id2label label2id model_name model_type num_labels problem_type
        quantization_config task_specific_params tf_legacy_loss tokenizer_class torch_dtype torchscript
        transformers.js_config transformers_version unsloth_fixed unsloth_version use_bfloat16
        """
        # what a call returns and how it is computed
        """
        cache_implementation num_logits_to_keep output_attentions output_hidden_states output_router_logits
        output_scores pretraining_tp return_dict return_dict_in_generate use_cache use_flash_attn
        """
        # training alone: dropouts, losses and initial values
        """
        attention_dropout attn_pdrop aux_loss_alpha classifier_dropout embd_pdrop ep_size gradient_checkpointing
        hidden_dropout initializer_range resid_pdrop router_aux_loss_coef router_jitter_noise seq_aux
        """
        # tokens, which `loaders` reads, and defaults of sampling, which a request states
        """
        bad_words_ids begin_suppress_tokens bos_token bos_token_id decoder_start_token_id diversity_penalty do_sample
        early_stopping encoder_no_repeat_ngram_size eos_token eos_token_id exponential_decay_length_penalty
        forced_bos_token_id forced_eos_token_id is_decoder length_penalty mask_token_id max_length min_length
        no_repeat_ngram_size num_beam_groups num_beams num_return_sequences pad_token pad_token_id prefix
        remove_invalid_values repetition_penalty sep_token_id suppress_tokens temperature top_k top_p typical_p
        unk_token_id
        """
        # the context, which `max_position_embeddings` states, and the rotation, which parts/rope.py reads
        """
        max_sequence_length model_max_length original_max_position_embeddings rope_parameters rope_scaling rope_theta
        seq_length
        """
    ),
    hf_only={
        **dict.fromkeys(
            words(
                """
                add_cross_attention alibi attention_bias chunk_size_feed_forward cross_attention_hidden_size
                is_encoder_decoder lm_head_bias mlp_bias parallel_attn qk_layernorm qkv_bias rope_interleaved
                tie_encoder_decoder use_bias use_bidirectional_attention use_mrope use_parallel_residual use_qk_norm
                use_sliding_window
                """
            ),
            OFF,
        ),
        "is_causal": ON,
    },
    gguf=words(
        """
        attention.layer_norm_epsilon expert_used_count pooling_type rope.dimension_count rope.freq_base
        rope.scale_linear rope.scaling.attn_factor rope.scaling.factor rope.scaling.finetuned
        rope.scaling.original_context_length rope.scaling.type rope.scaling.yarn_beta_fast
        rope.scaling.yarn_beta_slow tensor_data_layout vocab_size
        """
    ),
    gguf_only={
        **dict.fromkeys(
            words(
                """
                attention.clamp_kqv attention.max_alibi_bias attention.sliding_window attn_logit_softcapping
                expert_shared_count final_logit_softcapping leading_dense_block_count nextn_predict_layers
                rope.scaling.yarn_log_multiplier use_parallel_residual
                """
            ),
            OFF,
        ),
        "attention.causal": ON,
        "expert_weights_scale": (1, 0),
    },
    rope=words(
        """
        attention_factor beta_fast beta_slow factor finetuned high_freq_factor long_factor low_freq_factor mscale
        mscale_all_dim original_max_position_embeddings partial_rotary_factor rope_theta rope_type short_factor
        truncate type
        """
    ),
)
# How a state space draws its time steps before training. Only `time_step_limit` bounds them afterwards.
INITIAL_STEPS = words("time_step_floor time_step_max time_step_min time_step_rank")
WITHOUT_BIASES = {"attention_bias": OFF}  # `hf_only` of an architecture whose attention has none in transformers
