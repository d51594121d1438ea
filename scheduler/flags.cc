#include "scheduler/flags.h"

#include <random>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "common/byte_size.h"
#include "common/kv_layout.h"
#include "common/status.h"
#include "common/step_plan.h"

ABSL_FLAG(std::string, model, "",
          "The model file (GGUF). Required; the workers are given the same one.");
ABSL_FLAG(std::string, model_name, "",
          "What requests call the model. Empty: the file's name without its ending.");
ABSL_FLAG(
    std::string, listen, "127.0.0.1:7000",
    "Where clients call: host:port (port 0 picks a free one) or unix:/path, several with commas. "
    "All services are served here unless --admin_listen is set.");
ABSL_FLAG(std::string, admin_listen, "",
          "Where operators and workers call (AdminService, FleetService), when not at --listen.");
ABSL_FLAG(std::string, metrics_listen, "127.0.0.1:9400",
          "Where /metrics and /healthz are served over HTTP. Empty: nowhere.");
ABSL_FLAG(bool, exit_with_parent, false,
          "Drain and end when the process that started this one ends.");
ABSL_FLAG(std::string, ready_file, "",
          "Written as JSON (pid and addresses), whole or not at all, once everything listens.");

ABSL_FLAG(uint32_t, block_size, 16, "Tokens a KV block holds, 1 to 256.");
ABSL_FLAG(uint32_t, num_blocks, 0,
          "Blocks of the pool; refused if they do not fit. 0: as --kv_memory or "
          "--memory_utilization says, else what the worker takes by itself: on a CPU 4 GiB or, if "
          "that is less, a quarter of the memory that is left; on a device of its own what 0.92 of "
          "its memory leaves.");
ABSL_FLAG(octavo::ByteSize, kv_memory, {},
          "Memory of the pool on each worker, as 2GiB, instead of --num_blocks; refused if it does "
          "not fit. 0: not set.");
ABSL_FLAG(double, memory_utilization, 0,
          "Share of each worker's memory that weights, activations and pool may take together, "
          "above 0 and at most 1, instead of --num_blocks; refused if it is not free. 0: not set.");
ABSL_FLAG(std::string, kv_dtype, "",
          "Element type of the KV cache: f16 or bf16. Empty: the worker's default.");
ABSL_FLAG(uint32_t, context_length, 0,
          "Most tokens of prompt and completion together; a pool that cannot hold as many is "
          "refused. 0: the model's, or what the pool holds if that is less.");
ABSL_FLAG(uint32_t, max_step_tokens, 2048,
          "Tokens a step computes, decodes and prefill chunks together.");
ABSL_FLAG(uint32_t, long_prefill_token_limit, 512,
          "Most tokens of one prompt a step computes, so that decodes do not wait behind a long "
          "one. 0: no limit of its own.");
ABSL_FLAG(uint32_t, max_sequences, 256, "Sequences running at once, 1 to 65536.");
ABSL_FLAG(uint32_t, max_queued_requests, 1024,
          "Requests waiting at once; more are RESOURCE_EXHAUSTED.");
ABSL_FLAG(uint64_t, max_waiting_tokens, 8 << 20,
          "Prompt tokens of the waiting requests together, at least the model's context length; "
          "more are RESOURCE_EXHAUSTED.");
ABSL_FLAG(
    std::string, kv_policy, "paged",
    "How sequences get KV memory: paged, or, to be measured against, contiguous runs reserved "
    "at admission without sharing: reserve_max, reserve_pow2, oracle (all three know "
    "max_tokens) or static (batches that end together).");
ABSL_FLAG(std::string, contiguous_allocator, "buddy",
          "How policies other than paged find room: buddy or first_fit.");
ABSL_FLAG(bool, prefix_cache, true,
          "Reuse the KV of prompts that begin alike (with --kv_policy=paged).");
ABSL_FLAG(uint32_t, prefix_match_unit, 1,
          "What begins alike is reused up to a multiple of this many tokens inside a block, 1 to "
          "--block_size. 1: every token; the block size: whole blocks only.");
ABSL_FLAG(
    uint32_t, max_prefix_wait_steps, 128,
    "A request whose prefix another one is computing waits for it in at most this many steps; "
    "then it computes the rest itself. 0: it never waits.");
ABSL_FLAG(uint32_t, steps_in_flight, 2,
          "1 or 2; with 2 the next step is planned while the last one runs.");

ABSL_FLAG(int32_t, min_priority, 0, "Lowest (soonest) priority a client may send.");
ABSL_FLAG(int32_t, max_priority, 100, "Highest (latest) priority a client may send.");
ABSL_FLAG(bool, log_prompts, false,
          "Write prompts and completions to the log, and let GetStepTrace show tokens.");

ABSL_FLAG(bool, kv_event_tokens, false,
          "Let WatchKvEvents carry the token ids of blocks, from which prompts and completions can "
          "be read back.");

ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(30),
          "After SIGTERM running requests have this long to finish.");
ABSL_FLAG(absl::Duration, step_deadline, absl::Seconds(5),
          "A worker that leaves a step unanswered this long, times (1 + tokens of the step / 256), "
          "is declared lost.");
ABSL_FLAG(absl::Duration, replica_grace, absl::Seconds(60),
          "Requests wait this long for a worker that is not there (yet, or any more), then end "
          "with UNAVAILABLE.");
ABSL_FLAG(
    absl::Duration, slow_reader_timeout, absl::Seconds(30),
    "A client that has not caught up with its stream for this long ends with RESOURCE_EXHAUSTED.");
ABSL_FLAG(absl::Duration, heartbeat, absl::Seconds(1), "How often workers register again.");
ABSL_FLAG(absl::Duration, worker_lease, absl::Seconds(10),
          "A worker that hears nothing of the scheduler for this long considers itself lost and "
          "registers again.");
ABSL_FLAG(absl::Duration, probe_interval, absl::Seconds(2),
          "How often the process dials its own listeners to see that they still accept.");

namespace octavo {
namespace {

absl::Status Bad(absl::string_view flag, absl::string_view rule) {
  const absl::CommandLineFlag* value = absl::FindCommandLineFlag(flag);
  return absl::InvalidArgumentError(
      absl::StrCat("--", flag, "=", value->CurrentValue(), ": it must be ", rule));
}

absl::Status CheckDurations() {
  for (const char* flag : {"step_deadline", "replica_grace", "slow_reader_timeout", "heartbeat",
                           "worker_lease", "probe_interval"}) {
    const auto value = absl::FindCommandLineFlag(flag)->TryGet<absl::Duration>();
    if (*value < absl::Milliseconds(10)) return Bad(flag, "at least 10ms");
  }
  if (absl::GetFlag(FLAGS_drain_timeout) < absl::ZeroDuration())
    return Bad("drain_timeout", "at least 0");
  return absl::OkStatus();
}

absl::StatusOr<PoolSize> PoolSizeFromFlags() {
  const uint32_t num_blocks = absl::GetFlag(FLAGS_num_blocks);
  const uint64_t kv_memory = absl::GetFlag(FLAGS_kv_memory).bytes;
  const double utilization = absl::GetFlag(FLAGS_memory_utilization);
  if (num_blocks > kMaxPoolBlocks)
    return Bad("num_blocks", absl::StrCat("at most ", kMaxPoolBlocks));
  if (!(utilization >= 0 && utilization <= 1))
    return Bad("memory_utilization", "above 0 and at most 1 (0: not set)");
  if ((num_blocks > 0) + (kv_memory > 0) + (utilization > 0) > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--num_blocks=", num_blocks, ", --kv_memory=", kv_memory,
        ", --memory_utilization=", utilization, ": each sizes the pool; give one of them"));
  }
  PoolSize size;
  if (num_blocks > 0) size.block_count = num_blocks;
  if (kv_memory > 0) size.kv_memory_bytes = kv_memory;
  if (utilization > 0) size.memory_utilization = utilization;
  return size;
}

std::map<std::string, std::string> LimitsInForce() {
  std::map<std::string, std::string> limits;
  for (const char* flag : {"block_size",
                           "num_blocks",
                           "kv_memory",
                           "memory_utilization",
                           "kv_policy",
                           "contiguous_allocator",
                           "prefix_match_unit",
                           "max_step_tokens",
                           "long_prefill_token_limit",
                           "max_sequences",
                           "max_queued_requests",
                           "max_waiting_tokens",
                           "min_priority",
                           "max_priority",
                           "drain_timeout",
                           "step_deadline",
                           "replica_grace",
                           "slow_reader_timeout",
                           "steps_in_flight",
                           "max_prefix_wait_steps"}) {
    limits[flag] = absl::FindCommandLineFlag(flag)->CurrentValue();
  }
  return limits;
}

}  // namespace

absl::StatusOr<SchedulerConfig> ConfigFromFlags() {
  SchedulerConfig config;
  config.model_path = absl::GetFlag(FLAGS_model);
  if (config.model_path.empty())
    return absl::InvalidArgumentError("--model is missing; give the path of a GGUF file");
  config.model_name = absl::GetFlag(FLAGS_model_name);
  config.listen = absl::GetFlag(FLAGS_listen);
  config.exit_with_parent = absl::GetFlag(FLAGS_exit_with_parent);
  config.admin_listen = absl::GetFlag(FLAGS_admin_listen);
  config.metrics_listen = absl::GetFlag(FLAGS_metrics_listen);
  config.ready_file = absl::GetFlag(FLAGS_ready_file);
  if (config.listen.empty()) return Bad("listen", "host:port or unix:/path");

  const uint32_t block_size = absl::GetFlag(FLAGS_block_size);
  if (block_size < 1 || block_size > kMaxBlockSize)
    return Bad("block_size", absl::StrCat("1 to ", kMaxBlockSize));
  const uint32_t prefix_match_unit = absl::GetFlag(FLAGS_prefix_match_unit);
  if (prefix_match_unit < 1 || prefix_match_unit > block_size)
    return Bad("prefix_match_unit", absl::StrCat("1 to --block_size (", block_size, ")"));
  const std::string kv_dtype = absl::GetFlag(FLAGS_kv_dtype);
  if (!kv_dtype.empty() && !ParseKvType(kv_dtype).ok()) return Bad("kv_dtype", "f16 or bf16");
  OCTAVO_RETURN_IF_ERROR(CheckDurations());
  if (absl::GetFlag(FLAGS_min_priority) > absl::GetFlag(FLAGS_max_priority))
    return Bad("min_priority", "at most --max_priority");

  EngineOptions& engine = config.loop.engine;
  engine.max_step_tokens = absl::GetFlag(FLAGS_max_step_tokens);
  engine.long_prefill_token_limit = absl::GetFlag(FLAGS_long_prefill_token_limit);
  engine.max_sequences = absl::GetFlag(FLAGS_max_sequences);
  if (engine.max_step_tokens < 1 || engine.max_step_tokens > kMaxStepTokens)
    return Bad("max_step_tokens", absl::StrCat("1 to ", kMaxStepTokens));
  if (engine.max_sequences < 1 || engine.max_sequences > kMaxSequences)
    return Bad("max_sequences", absl::StrCat("1 to ", kMaxSequences));
  engine.max_waiting_requests = absl::GetFlag(FLAGS_max_queued_requests);
  engine.max_waiting_tokens = absl::GetFlag(FLAGS_max_waiting_tokens);
  engine.max_steps_in_flight = absl::GetFlag(FLAGS_steps_in_flight);
  OCTAVO_ASSIGN_OR_RETURN(engine.kv_policy, ParseKvPolicy(absl::GetFlag(FLAGS_kv_policy)));
  OCTAVO_ASSIGN_OR_RETURN(engine.contiguous_allocator,
                          ParseContiguousAllocatorKind(absl::GetFlag(FLAGS_contiguous_allocator)));
  engine.prefix_cache = absl::GetFlag(FLAGS_prefix_cache) && engine.kv_policy == KvPolicy::kPaged;
  engine.prefix_match_unit = prefix_match_unit;
  engine.max_prefix_wait_steps = absl::GetFlag(FLAGS_max_prefix_wait_steps);
  std::random_device entropy;
  engine.prefix_seed = uint64_t{entropy()} << 32 | entropy();

  FleetOptions& fleet = config.loop.fleet;
  fleet.layout.block_size = block_size;
  fleet.kv_dtype = kv_dtype;
  OCTAVO_ASSIGN_OR_RETURN(fleet.pool_size, PoolSizeFromFlags());
  fleet.max_step_tokens = engine.max_step_tokens;
  fleet.max_sequences = engine.max_sequences;
  fleet.step_deadline = absl::GetFlag(FLAGS_step_deadline);
  fleet.heartbeat = absl::GetFlag(FLAGS_heartbeat);
  fleet.lease = absl::GetFlag(FLAGS_worker_lease);

  config.loop.replica_grace = absl::GetFlag(FLAGS_replica_grace);
  config.loop.slow_reader_timeout = absl::GetFlag(FLAGS_slow_reader_timeout);
  // A live request has at most a cancellation and a catch-up on their way; calls of services share
  // what is left.
  config.loop.inbox_capacity =
      4096 + 4 * (size_t{engine.max_waiting_requests} + engine.max_sequences);
  if (absl::GetFlag(FLAGS_context_length) > 0)
    config.context_length = absl::GetFlag(FLAGS_context_length);
  config.limits = {.min_priority = absl::GetFlag(FLAGS_min_priority),
                   .max_priority = absl::GetFlag(FLAGS_max_priority),
                   .max_sequences = engine.max_sequences};
  config.log_prompts = absl::GetFlag(FLAGS_log_prompts);
  config.kv_event_tokens = absl::GetFlag(FLAGS_kv_event_tokens);
  config.drain_timeout = absl::GetFlag(FLAGS_drain_timeout);
  config.probe_interval = absl::GetFlag(FLAGS_probe_interval);
  config.limits_by_flag = LimitsInForce();
  return config;
}

}  // namespace octavo
