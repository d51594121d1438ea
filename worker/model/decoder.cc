#include "worker/model/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

namespace octavo {

Decoder::Decoder(const ModelConfig& config, DecoderWeights weights, Backend& backend,
                 uint32_t max_tokens)
    : backend_(backend),
      weights_(std::move(weights)),
      heads_{config.query_head_count, config.kv_head_count, config.head_dim},
      epsilon_(config.rms_epsilon) {
  // One activation serves all layers, so it is made for the products of every layer: files mix
  // types.
  std::vector<MatrixId> attention_in, attention_out, ffn_in, ffn_out;
  for (const LayerWeights& layer : weights_.layers) {
    attention_in.insert(attention_in.end(), {layer.query, layer.key, layer.value});
    attention_out.push_back(layer.attention_output);
    ffn_in.insert(ffn_in.end(), {layer.gate, layer.up});
    ffn_out.push_back(layer.down);
  }
  residual_ = backend.CreateActivation(config.width, max_tokens);
  delta_ = backend.CreateActivation(config.width, max_tokens);
  attention_in_ = backend.CreateProductInput(attention_in, max_tokens);
  qkv_ = backend.CreateActivation(config.query_width() + 2 * config.kv_width(), max_tokens);
  attention_out_ = backend.CreateProductInput(attention_out, max_tokens);
  ffn_in_ = backend.CreateProductInput(ffn_in, max_tokens);
  gate_up_ = backend.CreateActivation(2 * config.ffn_width, max_tokens);
  ffn_out_ = backend.CreateProductInput(ffn_out, max_tokens);
  output_in_ = backend.CreateProductInput(std::array{weights_.output}, kLogitsRowsPerChunk);
  logits_ = backend.CreateActivation(config.vocab_size, kLogitsRowsPerChunk);
}

void Decoder::Record(Step& step, KvPoolId pool) const {
  const LayerGroup group(0);
  backend_.Begin(step);
  backend_.StartSlots(step);
  backend_.CopyBlocks(step, pool, group);
  if (step.inputs.token_count() != 0) {
    backend_.Embed(step, weights_.embedding, residual_);
    for (uint32_t layer = 0; layer < weights_.layers.size(); ++layer) {
      RecordLayer(step, pool, group, layer);
    }
    RecordLogits(step);
  }
}

void Decoder::RecordLayer(Step& step, KvPoolId pool, LayerGroup group, uint32_t layer) const {
  const LayerWeights& w = weights_.layers[layer];
  const uint32_t rows = step.inputs.token_count();
  if (layer == 0) {
    backend_.RmsNorm(step, residual_, w.attention_norm, epsilon_, attention_in_, rows);
  } else {
    backend_.AddRmsNorm(step, delta_, residual_, w.attention_norm, epsilon_, attention_in_, rows);
  }
  backend_.Linear(step, attention_in_, std::array{w.query, w.key, w.value}, qkv_, rows);
  backend_.RopeAndWriteKv(step, qkv_, heads_, weights_.rope, pool, group, layer);
  backend_.Attention(step, qkv_, heads_, pool, group, layer, attention_out_);
  backend_.Linear(step, attention_out_, std::array{w.attention_output}, delta_, rows);
  backend_.AllReduce(step, delta_, rows);

  backend_.AddRmsNorm(step, delta_, residual_, w.ffn_norm, epsilon_, ffn_in_, rows);
  backend_.Linear(step, ffn_in_, std::array{w.gate, w.up}, gate_up_, rows);
  backend_.SwiGlu(step, gate_up_, ffn_out_, rows);
  backend_.Linear(step, ffn_out_, std::array{w.down}, delta_, rows);
  backend_.AllReduce(step, delta_, rows);
}

void Decoder::RecordLogits(Step& step) const {
  const uint32_t wanted = static_cast<uint32_t>(step.inputs.logits_sources.size());
  for (uint32_t first = 0; first < wanted; first += kLogitsRowsPerChunk) {
    const uint32_t rows = std::min(kLogitsRowsPerChunk, wanted - first);
    backend_.GatherAddRmsNorm(step, delta_, residual_, weights_.output_norm, epsilon_, output_in_,
                              first, rows);
    backend_.Linear(step, output_in_, std::array{weights_.output}, logits_, rows);
    backend_.ChooseTokens(step, logits_, first, rows);
  }
}

}  // namespace octavo
