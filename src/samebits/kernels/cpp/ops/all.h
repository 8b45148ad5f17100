// Every kernel of one instruction set in one table. A file in isa/ sets the flags, names the set and includes this.
#pragma once

#define SAMEBITS_NAME_TEXT(x) #x
#define SAMEBITS_NAME(x) SAMEBITS_NAME_TEXT(x)

#ifndef SAMEBITS_KERNELS_ELSEWHERE  // tests link kernels that were compiled with the module
#include "activation.h"
#include "append.h"
#include "attention_fast.h"
#include "bandwidth.h"
#include "columns.h"
#include "conv.h"
#include "copy_pages.h"
#include "copy_slots.h"
#include "delta.h"
#include "elementwise.h"
#include "embedding.h"
#include "expert_gemm.h"
#include "experts.h"
#include "gated_norm.h"
#include "gemm.h"
#include "head_gemm.h"
#include "layout.h"
#include "norm.h"
#include "quantize.h"
#include "rope.h"
#include "route.h"
#include "sample.h"
#include "select.h"
#include "softmax.h"
#include "ssm.h"
#include "state.h"

namespace samebits::SAMEBITS_ISA {

constexpr NativeOp kOps[] = {
    {"append_paged_kv_cache", run_append, Split::cells, append_scratch},
    {"rope_and_append", run_rope_and_append, Split::cells, append_scratch},
    {"copy_kv_pages", run_copy_kv_pages, Split::free},
    {"copy_slots", run_copy_slots, Split::free},
    {"causal_conv", run_causal_conv, Split::free, conv_scratch},
    {"gated_delta_rule", run_gated_delta_rule, Split::free, delta_scratch},
    {"ssm_scan", run_ssm_scan, Split::free, ssm_scratch},
    {"convert_kv_layout", run_convert_kv_layout, Split::rows},
    {"paged_attention", run_paged_attention, Split::free, paged_attention_scratch},
    {"embedding", run_embedding, Split::free, embedding_scratch},
    {"gemm", run_gemm, Split::free, gemm_scratch},
    {"gemm_q8", run_gemm_q8, Split::free, gemm_q8_scratch, warm_gemm_q8},
    {"gemm_silu_q8", run_gemm_silu_q8, Split::free, gemm_q8_scratch, warm_gemm_silu_q8},
    {"grouped_gemm", run_grouped_gemm, Split::free, grouped_gemm_scratch},
    {"head_gemm", run_head_gemm, Split::free, head_gemm_scratch},
    {"route", run_route, Split::rows, route_scratch},
    {"expert_layout", run_expert_layout, Split::free, expert_layout_scratch},
    {"expert_gemm", run_expert_gemm, Split::free, expert_gemm_scratch},
    {"expert_gemm_q8", run_expert_gemm_q8, Split::free, expert_q8_scratch},
    {"expert_gate_q8", run_expert_gate_q8, Split::free, expert_q8_scratch},
    {"combine", run_combine, Split::rows},
    {"rms_norm", run_rms_norm, Split::rows, norm_scratch},
    {"l2_norm", run_l2_norm, Split::rows, norm_scratch},
    {"gated_rms_norm", run_gated_rms_norm, Split::rows, norm_scratch},
    {"layer_norm", run_layer_norm, Split::rows, norm_scratch},
    {"fused_add_rms_norm", run_fused_add_rms_norm, Split::rows, norm_scratch},
    {"quantize_q8", run_quantize_q8, Split::rows, quantize_scratch},
    {"silu_and_mul", run_silu_and_mul, Split::rows, gated_scratch},
    {"gelu_and_mul", run_gelu_and_mul, Split::rows, gated_scratch},
    {"clamped_swiglu", run_clamped_swiglu, Split::rows, gated_scratch},
    {"add", run_add, Split::rows, elementwise_scratch},
    {"mul", run_mul, Split::rows, elementwise_scratch},
    {"sigmoid_and_mul", run_sigmoid_and_mul, Split::rows, elementwise_scratch},
    {"scale", run_scale, Split::rows, elementwise_scratch},
    {"soft_cap", run_soft_cap, Split::rows, elementwise_scratch},
    {"cast", run_cast, Split::rows, elementwise_scratch},
    {"rope", run_rope, Split::rows, rope_scratch},
    {"split_heads", run_same_columns, Split::rows},
    {"merge_heads", run_same_columns, Split::rows},
    {"slice_columns", run_slice_columns, Split::rows},
    {"concat_columns", run_concat_columns, Split::rows, concat_scratch},
    {"softmax", run_softmax, Split::rows, elementwise_scratch},
    {"argmax", run_argmax, Split::rows, argmax_scratch},
    {"top_k", run_top_k, Split::rows, top_k_scratch},
    {"top_k_mask_logits", run_top_k_mask_logits, Split::rows, top_k_scratch},
    {"sample", run_sample, Split::rows, sample_scratch},
    {"merge_state", run_merge_state, Split::rows, state_scratch},
};

}  // namespace samebits::SAMEBITS_ISA

namespace samebits {
extern const OpTable SAMEBITS_TABLE;
const OpTable SAMEBITS_TABLE = {SAMEBITS_NAME(SAMEBITS_ISA), SAMEBITS_ISA::kOps, sizeof(SAMEBITS_ISA::kOps) / sizeof(NativeOp),
                                SAMEBITS_ISA::rows16_bytes, SAMEBITS_ISA::pack_groups, SAMEBITS_ISA::read_all};
}  // namespace samebits
#endif
