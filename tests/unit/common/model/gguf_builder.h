#pragma once

// Writes small GGUF files into memory, for tests: every field can be set to what a file should
// never hold. Values; any thread.

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/model/gguf.h"
#include "common/tensor_type.h"

namespace octavo {

class GgufBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  // of tensor data; Set("general.alignment", …) is the caller's affair
  uint64_t extra_metadata_count = 0;  // claimed in the preamble, not there
  uint64_t extra_tensor_count = 0;

  template <typename T>
  static void Append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  static void AppendString(std::string& out, const std::string& text) {
    Append<uint64_t>(out, text.size());
    out += text;
  }

  GgufBuilder& U32(const std::string& key, uint32_t value) {
    return Scalar(key, GgufType::kU32, value);
  }
  GgufBuilder& F32(const std::string& key, float value) {
    return Scalar(key, GgufType::kF32, value);
  }
  GgufBuilder& Bool(const std::string& key, uint8_t value) {
    return Scalar(key, GgufType::kBool, value);
  }
  GgufBuilder& String(const std::string& key, const std::string& value) {
    std::string payload;
    AppendString(payload, value);
    return Raw(key, static_cast<uint32_t>(GgufType::kString), payload);
  }
  GgufBuilder& Strings(const std::string& key, const std::vector<std::string>& values) {
    std::string payload;
    Append(payload, static_cast<uint32_t>(GgufType::kString));
    Append<uint64_t>(payload, values.size());
    for (const std::string& value : values) AppendString(payload, value);
    return Raw(key, static_cast<uint32_t>(GgufType::kArray), payload);
  }
  template <typename T>
  GgufBuilder& Array(const std::string& key, GgufType element_type, const std::vector<T>& values) {
    std::string payload;
    Append(payload, static_cast<uint32_t>(element_type));
    Append<uint64_t>(payload, values.size());
    for (T value : values) Append(payload, value);
    return Raw(key, static_cast<uint32_t>(GgufType::kArray), payload);
  }
  template <typename T>
  GgufBuilder& Scalar(const std::string& key, GgufType type, T value) {
    std::string payload;
    Append(payload, value);
    return Raw(key, static_cast<uint32_t>(type), payload);
  }
  // A value of type number `type`, whose bytes are `payload`. A key set before is replaced.
  GgufBuilder& Raw(const std::string& key, uint32_t type, const std::string& payload) {
    Remove(key);
    return Repeat(key, type, payload);
  }
  // The same without looking for an earlier one.
  GgufBuilder& Repeat(const std::string& key, uint32_t type, const std::string& payload) {
    entries_.push_back({key, type, payload});
    return *this;
  }
  GgufBuilder& Remove(const std::string& key) {
    std::erase_if(entries_, [&key](const Entry& entry) { return entry.key == key; });
    return *this;
  }

  // A tensor of `dims` (dims[0] runs fastest) at the next aligned offset, its bytes counting up
  // from its index.
  GgufBuilder& Tensor(const std::string& name, TensorType type, const std::vector<uint64_t>& dims) {
    uint64_t bytes = RowBytes(type, dims.empty() ? 0 : dims[0]);
    for (size_t i = 1; i < dims.size(); ++i) bytes *= dims[i];
    std::string data(bytes, '\0');
    for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(tensors_.size() + i);
    return TensorOf(name, static_cast<uint32_t>(type), dims, data);
  }
  GgufBuilder& F32Tensor(const std::string& name, const std::vector<uint64_t>& dims,
                         const std::vector<float>& values) {
    std::string data;
    for (float value : values) Append(data, value);
    return TensorOf(name, static_cast<uint32_t>(TensorType::kF32), dims, data);
  }
  GgufBuilder& TensorOf(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
                        const std::string& data) {
    data_.resize((data_.size() + alignment - 1) / alignment * alignment);
    return TensorAt(name, type, dims, data_.size(), data);
  }
  // The same with an offset of the caller's; `data` is appended wherever the data section ends.
  GgufBuilder& TensorAt(const std::string& name, uint32_t type, const std::vector<uint64_t>& dims,
                        uint64_t offset, const std::string& data) {
    tensors_.push_back({name, type, dims, offset});
    data_ += data;
    return *this;
  }
  GgufBuilder& RemoveTensor(const std::string& name) {
    std::erase_if(tensors_, [&name](const TensorInfo& tensor) { return tensor.name == name; });
    return *this;
  }

  std::string Build() const {
    std::string out = "GGUF";
    Append(out, version);
    Append<uint64_t>(out, tensors_.size() + extra_tensor_count);
    Append<uint64_t>(out, entries_.size() + extra_metadata_count);
    for (const Entry& entry : entries_) {
      AppendString(out, entry.key);
      Append(out, entry.type);
      out += entry.payload;
    }
    for (const TensorInfo& tensor : tensors_) {
      AppendString(out, tensor.name);
      Append<uint32_t>(out, tensor.dims.size());
      for (uint64_t dim : tensor.dims) Append(out, dim);
      Append(out, tensor.type);
      Append(out, tensor.offset);
    }
    if (tensors_.empty()) return out;
    out.resize((out.size() + alignment - 1) / alignment * alignment);
    return out + data_;
  }

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::string payload;
  };
  struct TensorInfo {
    std::string name;
    uint32_t type;
    std::vector<uint64_t> dims;
    uint64_t offset;
  };
  std::vector<Entry> entries_;
  std::vector<TensorInfo> tensors_;
  std::string data_;
};

inline std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A complete llama model of `layers` layers: width 64, FFN 96, 4 query and 2 KV heads of 16, 40
// tokens.
inline GgufBuilder SmallLlama(uint32_t layers = 1, TensorType type = TensorType::kQ8_0) {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").String("general.name", "small");
  builder.U32("llama.block_count", layers).U32("llama.context_length", 128);
  builder.U32("llama.embedding_length", 64).U32("llama.feed_forward_length", 96);
  builder.U32("llama.attention.head_count", 4).U32("llama.attention.head_count_kv", 2);
  builder.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)
      .F32("llama.rope.freq_base", 50'000.0f);
  builder.Tensor("token_embd.weight", type, {64, 40});
  builder.Tensor("output_norm.weight", TensorType::kF32, {64});
  for (uint32_t i = 0; i < layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    builder.Tensor(prefix + "attn_norm.weight", TensorType::kF32, {64});
    builder.Tensor(prefix + "attn_q.weight", type, {64, 64});
    builder.Tensor(prefix + "attn_k.weight", type, {64, 32});
    builder.Tensor(prefix + "attn_v.weight", type, {64, 32});
    builder.Tensor(prefix + "attn_output.weight", type, {64, 64});
    builder.Tensor(prefix + "ffn_norm.weight", TensorType::kF32, {64});
    builder.Tensor(prefix + "ffn_gate.weight", type, {64, 96});
    builder.Tensor(prefix + "ffn_up.weight", type, {64, 96});
    builder.Tensor(prefix + "ffn_down.weight", type, {96, 64});
  }
  return builder;
}

// A llama as small as one can be, so that nearly all of its bytes are header: width 2, one head of
// 2, one token. Every tensor F32, with an output matrix and Llama 3's RoPE factors.
inline GgufBuilder TinyLlama() {
  GgufBuilder builder;
  builder.String("general.architecture", "llama").U32("llama.block_count", 1);
  builder.U32("llama.context_length", 8).U32("llama.embedding_length", 2);
  builder.U32("llama.feed_forward_length", 1).U32("llama.attention.head_count", 1);
  builder.U32("llama.attention.head_count_kv", 1).U32("llama.vocab_size", 1);
  builder.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  builder.F32Tensor("rope_freqs.weight", {1}, {8.0f});
  for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    builder.Tensor(std::string(name) + ".weight", TensorType::kF32, {2});
  }
  for (const char* name : {"token_embd", "output", "blk.0.ffn_gate", "blk.0.ffn_up"}) {
    builder.Tensor(std::string(name) + ".weight", TensorType::kF32, {2, 1});
  }
  for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
    builder.Tensor(std::string("blk.0.") + name + ".weight", TensorType::kF32, {2, 2});
  }
  builder.Tensor("blk.0.ffn_down.weight", TensorType::kF32, {1, 2});
  return builder;
}

}  // namespace octavo
