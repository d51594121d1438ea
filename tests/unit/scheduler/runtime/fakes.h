#pragma once

// Stand-ins for the loop's seams: a worker that records what it is told and answers when a test
// says so, a client's end that records its stream, an observer that counts.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/kv_layout.h"
#include "common/model/tokenizer.h"
#include "common/status_reason.h"
#include "glog/logging.h"
#include "scheduler/runtime/ports.h"
#include "tests/unit/common/model/small_vocabulary.h"

namespace octavo {

// Ids 0 to 255 are the bytes; 256 is the control token <end>.
constexpr TokenId kEndToken = 256;

inline std::unique_ptr<Tokenizer> ByteTokenizer() {
  return *Tokenizer::Create(SmallSpec({}, {{"<end>", TokenType::kControl}}));
}

// The name of a status's reason; empty if it has none.
inline std::string ReasonOf(absl::Status status) {
  return TakeReason(status).value_or(StatusReason{}).reason;
}

class FakeDialer final : public WorkerDialer {
 public:
  // One dialled connection, recorded beyond its end.
  struct Link {
    std::string address;
    LinkId id;
    WorkerEvents* events = nullptr;
    std::vector<LoadModelCall> loads;
    std::vector<StartReplicaCall> starts;
    int streams = 0;
    std::deque<StepPlan> unanswered;
    bool closed = false;
  };

  std::unique_ptr<WorkerClient> Dial(const std::string& address, LinkId link,
                                     WorkerEvents* events) override {
    links.push_back(std::make_unique<Link>(Link{.address = address, .id = link, .events = events}));
    return std::make_unique<Client>(links.back().get());
  }

  Link& last() { return *links.back(); }

  std::vector<std::unique_ptr<Link>> links;

 private:
  class Client final : public WorkerClient {
   public:
    explicit Client(Link* link) : link_(link) {}
    ~Client() override { link_->closed = true; }
    void LoadModel(const LoadModelCall& call) override { link_->loads.push_back(call); }
    void StartReplica(const StartReplicaCall& call) override { link_->starts.push_back(call); }
    void OpenStream() override { ++link_->streams; }
    void SendPlan(const StepPlan& plan) override { link_->unanswered.push_back(plan); }

   private:
    Link* const link_;
  };
};

class FakeSink final : public TokenSink {
 public:
  void Admit() override { admitted = true; }
  bool Write(StreamChunk chunk) override {
    if (!chunk.is_prompt) texts[chunk.index] += chunk.text;
    if (chunk.end) CHECK(sequence_ends.emplace(chunk.index, *chunk.end).second);
    usage = chunk.usage;
    chunks.push_back(std::move(chunk));
    return keeps_up;
  }
  void End(StreamEnd end) override { ends.push_back(std::move(end)); }

  // Of the first sequence.
  std::string text() { return texts[0]; }
  SequenceEnd end() { return sequence_ends[0]; }

  bool keeps_up = true;
  bool admitted = false;
  std::map<uint32_t, std::string> texts;  // of the completions, by index
  std::map<uint32_t, SequenceEnd> sequence_ends;
  UsageCounts usage;  // the last
  std::vector<StreamChunk> chunks;
  std::vector<StreamEnd> ends;
};

class FakeObserver final : public LoopObserver {
 public:
  void OnAdmitted(uint32_t count) override { prompt_tokens += count; }
  void OnTokens(uint32_t count, bool, absl::Duration) override { generation_tokens += count; }
  void OnStep(const StepSample&) override { ++steps; }
  void OnRequestEnded(const RequestSample& sample) override { outcomes.push_back(sample.outcome); }
  void OnSlowReader() override { ++slow_readers; }
  void OnLevels(const LevelSample& sample) override { levels = sample; }
  void OnReadiness(bool value) override { ready = value; }

  uint64_t prompt_tokens = 0, generation_tokens = 0, steps = 0, slow_readers = 0;
  std::vector<std::string> outcomes;
  LevelSample levels;
  bool ready = false;
};

inline KvLayout SmallLayout() {
  return {.block_size = 4, .layer_count = 1, .kv_head_count = 1, .head_dim = 2};
}

inline WorkerDescription SmallWorker(const std::string& instance,
                                     const std::string& address = "worker:1") {
  return {.instance_id = instance,
          .address = address,
          .device = "fake",
          .memory_bytes = 1 << 20,
          .min_block_size = 1,
          .max_block_size = 256,
          .kv_dtypes = {"f16"},
          .model_fingerprint = 42};
}

inline LoadedModel SmallLoadedModel(uint32_t block_count = 64) {
  return {.memory_plan = {.bytes_per_block = 16,
                          .block_count = block_count,
                          .max_block_count = 2 * block_count},
          .kv_layout_fingerprint = SmallLayout().Fingerprint(),
          .kv_dtype = "f16"};
}

}  // namespace octavo
