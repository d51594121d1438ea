#pragma once

// The seams between the loop and the world, and the values that cross them. The loop (loop.h) calls
// workers through WorkerClient, clients through TokenSink, watchers through KvEventSink and metrics
// through LoopObserver; what they have to say comes back through the loop's inbox. gRPC stands
// behind them in scheduler/rpc, fakes in the tests.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/ids.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "scheduler/core/actions.h"
#include "scheduler/core/introspection.h"
#include "scheduler/core/kv_events.h"

namespace octavo {

// ---- Workers ----

// A connection to a worker. What an older connection still says is recognised by it and dropped.
using LinkId = StrongId<struct LinkIdTag, uint64_t>;

// A worker process as it describes itself (fleet_service.proto).
struct WorkerDescription {
  std::string instance_id;  // made at each start of the process
  std::string address;      // gRPC target of its WorkerService
  std::string device;
  uint64_t memory_bytes = 0;
  uint32_t min_block_size = 0;
  uint32_t max_block_size = 0;
  std::vector<std::string> kv_dtypes;  // its default first
  uint64_t model_fingerprint = 0;
  uint32_t process_id = 0;
  std::string version;

  friend bool operator==(const WorkerDescription&, const WorkerDescription&) = default;
};

// How a rank's memory divides, in bytes unless named otherwise (worker_service.proto).
struct MemoryPlan {
  uint64_t total_bytes = 0;
  uint64_t weight_bytes = 0;
  uint64_t file_backed_bytes = 0;
  uint64_t activation_bytes = 0;
  uint64_t bytes_per_block = 0;
  uint64_t pool_bytes = 0;
  uint32_t block_count = 0;      // blocks of the pool it would make
  uint32_t max_block_count = 0;  // the largest pool that fits

  friend bool operator==(const MemoryPlan&, const MemoryPlan&) = default;
};

struct LoadModelCall {
  uint64_t model_fingerprint = 0;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t block_size = 0;
  std::string kv_dtype;  // empty: the device's default
  uint32_t max_step_tokens = 0;
  uint32_t max_sequences = 0;

  friend bool operator==(const LoadModelCall&, const LoadModelCall&) = default;
};

struct LoadedModel {
  MemoryPlan memory_plan;
  uint64_t kv_layout_fingerprint = 0;
  std::string kv_dtype;
};

struct StartReplicaCall {
  ReplicaId replica_id;
  Epoch epoch;
  uint32_t block_count = 0;
  uint32_t lease_ms = 0;

  friend bool operator==(const StartReplicaCall&, const StartReplicaCall&) = default;
};

// Where a WorkerClient reports, from any thread, never blocking.
class WorkerEvents {
 public:
  virtual ~WorkerEvents() = default;
  virtual void OnModelLoaded(LinkId link, absl::StatusOr<LoadedModel> loaded) = 0;
  virtual void OnReplicaStarted(LinkId link, absl::Status status) = 0;
  virtual void OnResult(LinkId link, StepResult result) = 0;
  // Once for each OpenStream, after its last result. Never OK-and-forgotten: an orderly end is
  // reported too.
  virtual void OnStreamEnded(LinkId link, absl::Status status) = 0;
};

// One connection to one worker. Called by the loop; returns at once and answers through
// WorkerEvents. Destroying it ends all its calls; afterwards it reports nothing.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual void LoadModel(const LoadModelCall& call) = 0;
  virtual void StartReplica(const StartReplicaCall& call) = 0;
  // REQUIRES: no stream is open (the first one, or after OnStreamEnded).
  virtual void OpenStream() = 0;
  // Plans leave in the order given. Dropped when the stream has ended.
  virtual void SendPlan(const StepPlan& plan) = 0;
};

class WorkerDialer {
 public:
  virtual ~WorkerDialer() = default;
  // `events` outlives the client.
  virtual std::unique_ptr<WorkerClient> Dial(const std::string& address, LinkId link,
                                             WorkerEvents* events) = 0;
};

// ---- Clients ----

struct UsageCounts {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;

  friend bool operator==(const UsageCounts&, const UsageCounts&) = default;
};

struct TokenAlternatives {
  std::optional<TokenLogprob>
      chosen;                     // absent for the first token of a prompt, which nothing predicts
  std::vector<TokenLogprob> top;  // most likely first

  friend bool operator==(const TokenAlternatives&, const TokenAlternatives&) = default;
};

// How one sequence of a stream ends.
struct SequenceEnd {
  FinishReason reason = FinishReason::kError;
  std::optional<TokenId> matched_token;
  std::optional<std::string> matched_string;
  std::optional<float> score;  // of a beam search's hypothesis

  friend bool operator==(const SequenceEnd&, const SequenceEnd&) = default;
};

// A piece of a stream. Text is whole UTF-8 characters; tokens may run ahead of it. One without
// text, tokens and end tells how far a beam search is.
struct StreamChunk {
  uint32_t index = 0;  // the sample's, or the hypothesis' rank
  bool is_prompt = false;
  std::string text;
  std::vector<TokenId> token_ids;
  std::vector<TokenAlternatives> logprobs;  // one for each of token_ids, or none
  UsageCounts usage;                        // up to and including this chunk
  std::optional<SequenceEnd> end;           // the last one of its index

  friend bool operator==(const StreamChunk&, const StreamChunk&) = default;
};

// How a stream ends: OK after the last chunk of every index, otherwise the status says why not.
struct StreamEnd {
  absl::Status status;
  std::optional<absl::Duration> queue_time;    // submit to admission; absent: never admitted
  std::optional<absl::Duration> prefill_time;  // admission to first token
  std::optional<absl::Duration> decode_time;   // first token to end
};

// The client's end of a request. Called by the loop only; never blocks. Order: Admit, Write…, End;
// a refused request sees End alone.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void Admit() = 0;
  // False when the reader is behind: the loop pauses the request until the sink calls
  // Loop::ReaderCaughtUp. The chunk is taken all the same.
  virtual bool Write(StreamChunk chunk) = 0;
  virtual void End(StreamEnd end) = 0;
};

// ---- Watchers ----

// Who watches the prefix index. Called by the loop only; never blocks. Order: Write…, End; nothing
// follows End.
class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  // First the snapshot, which is always taken. False when the watcher is too far behind to take
  // these: the loop ends it.
  virtual bool Write(std::shared_ptr<const std::vector<KvEvent>> events) = 0;
  virtual void End(absl::Status status) = 0;
  // Nobody reads any more; the loop forgets it without an End.
  virtual bool gone() const = 0;
};

// ---- Metrics ----

// What one step did.
struct StepSample {
  uint32_t row_count = 0;
  uint32_t token_count = 0;
  absl::Duration duration;  // sent to result
  StepTimings timings;
};

// What one request did, when it ended.
struct RequestSample {
  std::string outcome;  // a finish reason, or "refused"
  UsageCounts usage;
  std::optional<uint32_t> max_tokens;
  std::optional<absl::Duration> queue_time, prefill_time, decode_time;
  absl::Duration total_time;
};

// Levels after a turn of the loop.
struct LevelSample {
  uint32_t running = 0, waiting = 0, paused = 0;
  SlotWaste waste;
  uint32_t block_size = 0, block_count = 0, free_blocks = 0, cached_blocks = 0, held_blocks = 0;
  bool replica_ready = false;
  uint64_t step_lag = 0;  // steps in flight
  uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0, prefix_in_flight_hit_tokens = 0;
  uint64_t preemptions = 0, evicted_blocks = 0;
  uint64_t ignored_results = 0, resyncs = 0, replica_losses = 0;
};

// Called by the loop only.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  virtual void OnAdmitted(uint32_t prompt_tokens) = 0;
  // Tokens of one request in one step; `since_last` is the time since its previous token, or since
  // its arrival for the first.
  virtual void OnTokens(uint32_t count, bool first, absl::Duration since_last) = 0;
  virtual void OnStep(const StepSample& sample) = 0;
  virtual void OnRequestEnded(const RequestSample& sample) = 0;
  virtual void OnSlowReader() = 0;
  virtual void OnLevels(const LevelSample& sample) = 0;
  // The scheduler can serve requests now, or can no longer.
  virtual void OnReadiness(bool ready) = 0;
};

}  // namespace octavo
