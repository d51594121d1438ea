#include "scheduler/http/metrics.h"

#include <utility>
#include <vector>

#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"

namespace octavo {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

using Buckets = Histogram::BucketBoundaries;

// vLLM's, with a finer lower end for times a token (operations: 10 ms is too coarse for fast
// devices).
const Buckets kFirstTokenSeconds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                    1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
const Buckets kTokenSeconds = {.001, .002, .005, .01, .025, .05, .075, .1, .15, .2, .3,
                               .4,   .5,   .75,  1,   2.5,  5,   7.5,  10, 20,  40, 80};
const Buckets kRequestSeconds = {.01, .05, .1, .3, .5, .8, 1,   1.5, 2,   2.5, 5,    10,
                                 15,  20,  30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kTokenCounts = {1,   2,    5,    10,   20,    50,    100,   200,
                              500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const Buckets kStepTokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};

}  // namespace

struct Metrics::Families {
  explicit Families(const std::string& model_name) : labels{{"model_name", model_name}} {}

  Counter& AddCounter(const std::string& name, const std::string& help, Labels more = {}) {
    return BuildCounter()
        .Name("octavo_" + name)
        .Help(help)
        .Register(registry)
        .Add(With(std::move(more)));
  }
  Gauge& AddGauge(const std::string& name, const std::string& help, Labels more = {}) {
    return BuildGauge()
        .Name("octavo_" + name)
        .Help(help)
        .Register(registry)
        .Add(With(std::move(more)));
  }
  Histogram& AddHistogram(const std::string& name, const std::string& help, const Buckets& buckets,
                          Labels more = {}) {
    return BuildHistogram()
        .Name("octavo_" + name)
        .Help(help)
        .Register(registry)
        .Add(With(std::move(more)), buckets);
  }
  Labels With(Labels more) const {
    more.insert(labels.begin(), labels.end());
    return more;
  }
  // Outcomes are made when first seen, so that only those that happen are exported.
  Counter& Outcome(const std::string& outcome) {
    return AddCounter("requests_total",
                      "Requests that ended, by outcome: a finish reason, or refused.",
                      {{"outcome", outcome}});
  }

  Registry registry;
  const Labels labels;

  Gauge& running = AddGauge("num_requests_running", "Requests that hold blocks and get steps.");
  Gauge& waiting = AddGauge("num_requests_waiting",
                            "Requests that wait for blocks, a sequence slot or a worker.");
  Gauge& paused =
      AddGauge("num_requests_paused", "Requests paused because their clients read too slowly.");
  Gauge& usage = AddGauge("kv_cache_usage_ratio", "Held blocks as a share of the pool, 0 to 1.");
  Gauge& free_blocks = AddGauge("kv_blocks", "Blocks of the pool by state.", {{"state", "free"}});
  Gauge& cached_blocks =
      AddGauge("kv_blocks", "Blocks of the pool by state.", {{"state", "cached"}});
  Gauge& held_blocks = AddGauge("kv_blocks", "Blocks of the pool by state.", {{"state", "held"}});
  static constexpr char kSlotsHelp[] =
      "Token slots without a token: reserved for their sequences, never to be filled (internal), "
      "or free but in no run long enough (external; contiguous policies).";
  Gauge& reserved_slots = AddGauge("kv_empty_slots", kSlotsHelp, {{"kind", "reserved"}});
  Gauge& internal_slots = AddGauge("kv_empty_slots", kSlotsHelp, {{"kind", "internal"}});
  Gauge& external_slots = AddGauge("kv_empty_slots", kSlotsHelp, {{"kind", "external"}});
  Gauge& block_size = AddGauge("kv_block_size_tokens", "Tokens a block holds.");
  Gauge& block_count = AddGauge("kv_pool_blocks", "Blocks of the pool.");
  Gauge& worker_up = AddGauge("worker_up", "1 while the replica can run steps.");
  Gauge& step_lag = AddGauge("worker_step_lag", "Steps sent and not yet answered.");

  Counter& prompt_tokens = AddCounter("prompt_tokens_total", "Prompt tokens of admitted requests.");
  Counter& generation_tokens =
      AddCounter("generation_tokens_total", "Tokens generated for clients.");
  Counter& prefix_queries =
      AddCounter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix index.");
  Counter& prefix_hits =
      AddCounter("prefix_cache_hits_total", "Prompt tokens found in the prefix index.");
  Counter& prefix_in_flight_hits = AddCounter(
      "prefix_cache_in_flight_hits_total",
      "Of the tokens found, those in whole blocks that a step in flight was still to fill.");
  Counter& preemptions =
      AddCounter("num_preemptions_total", "Sequences preempted for want of blocks.");
  Counter& evictions =
      AddCounter("kv_blocks_evicted_total", "Cached blocks that lost their prefix to another use.");
  Counter& admitted = AddCounter("requests_admitted_total", "Requests that got their first step.");
  Counter& slow_readers =
      AddCounter("slow_client_stalls_total", "Times a request was paused for its slow client.");
  Counter& deadlines_missed = AddCounter("client_deadline_missed_total",
                                         "Requests whose deadline passed before their end.");
  Counter& ignored_results =
      AddCounter("ignored_step_results_total", "Results ignored as duplicate, late or unknown.");
  Counter& resyncs =
      AddCounter("replica_resyncs_total", "Resynchronisations after a refused plan.");
  Counter& replica_losses = AddCounter("replica_losses_total", "Times the replica was lost.");
  Counter& steps = AddCounter("steps_total", "Steps completed.");

  Histogram& first_token = AddHistogram("time_to_first_token_seconds",
                                        "From arrival to first token.", kFirstTokenSeconds);
  Histogram& inter_token = AddHistogram("inter_token_latency_seconds",
                                        "Between two tokens of a request.", kTokenSeconds);
  Histogram& request_time =
      AddHistogram("e2e_request_latency_seconds", "From arrival to end.", kRequestSeconds);
  Histogram& queue_time =
      AddHistogram("request_queue_time_seconds", "From arrival to admission.", kRequestSeconds);
  Histogram& inference_time =
      AddHistogram("request_inference_time_seconds", "From admission to end.", kRequestSeconds);
  Histogram& prefill_time = AddHistogram("request_prefill_time_seconds",
                                         "From admission to first token.", kRequestSeconds);
  Histogram& decode_time =
      AddHistogram("request_decode_time_seconds", "From first token to end.", kRequestSeconds);
  Histogram& request_prompt =
      AddHistogram("request_prompt_tokens", "Prompt tokens of a request.", kTokenCounts);
  Histogram& request_generation =
      AddHistogram("request_generation_tokens", "Tokens a request generated.", kTokenCounts);
  Histogram& request_max = AddHistogram("request_params_max_tokens",
                                        "max_tokens of requests that set it.", kTokenCounts);
  Histogram& step_tokens =
      AddHistogram("iteration_tokens", "Tokens computed in a step.", kStepTokens);
  Histogram& step_time = AddHistogram("step_duration_seconds", "Time of a step by phase.",
                                      kTokenSeconds, {{"phase", "total"}});
  Histogram& step_prepare = AddHistogram("step_duration_seconds", "Time of a step by phase.",
                                         kTokenSeconds, {{"phase", "prepare"}});
  Histogram& step_forward = AddHistogram("step_duration_seconds", "Time of a step by phase.",
                                         kTokenSeconds, {{"phase", "forward"}});
  Histogram& step_sample = AddHistogram("step_duration_seconds", "Time of a step by phase.",
                                        kTokenSeconds, {{"phase", "sample"}});
};

namespace {

// The engine counts from its start; the counter follows.
void Follow(Counter& counter, uint64_t total) {
  const double behind = static_cast<double>(total) - counter.Value();
  if (behind > 0) counter.Increment(behind);
}

}  // namespace

Metrics::Metrics(const std::string& model_name, std::function<void(bool)> on_readiness)
    : families_(std::make_unique<Families>(model_name)), on_readiness_(std::move(on_readiness)) {}

Metrics::~Metrics() = default;

void Metrics::OnAdmitted(uint32_t prompt_tokens) {
  families_->admitted.Increment();
  families_->prompt_tokens.Increment(prompt_tokens);
}

void Metrics::OnTokens(uint32_t count, bool first, absl::Duration since_last) {
  families_->generation_tokens.Increment(count);
  (first ? families_->first_token : families_->inter_token)
      .Observe(absl::ToDoubleSeconds(since_last));
}

void Metrics::OnStep(const StepSample& sample) {
  families_->steps.Increment();
  families_->step_tokens.Observe(sample.token_count);
  families_->step_time.Observe(absl::ToDoubleSeconds(sample.duration));
  families_->step_prepare.Observe(static_cast<double>(sample.timings.prepare_ns) * 1e-9);
  families_->step_forward.Observe(static_cast<double>(sample.timings.forward_ns) * 1e-9);
  families_->step_sample.Observe(static_cast<double>(sample.timings.sample_ns) * 1e-9);
}

void Metrics::OnRequestEnded(const RequestSample& sample) {
  families_->Outcome(sample.outcome).Increment();
  if (sample.outcome == "deadline") families_->deadlines_missed.Increment();
  if (sample.max_tokens) families_->request_max.Observe(*sample.max_tokens);
  if (!sample.queue_time) return;  // never ran
  families_->request_time.Observe(absl::ToDoubleSeconds(sample.total_time));
  families_->queue_time.Observe(absl::ToDoubleSeconds(*sample.queue_time));
  families_->inference_time.Observe(absl::ToDoubleSeconds(sample.total_time - *sample.queue_time));
  families_->request_prompt.Observe(sample.usage.prompt_tokens);
  families_->request_generation.Observe(sample.usage.completion_tokens);
  if (sample.prefill_time)
    families_->prefill_time.Observe(absl::ToDoubleSeconds(*sample.prefill_time));
  if (sample.decode_time)
    families_->decode_time.Observe(absl::ToDoubleSeconds(*sample.decode_time));
}

void Metrics::OnSlowReader() { families_->slow_readers.Increment(); }

void Metrics::OnLevels(const LevelSample& sample) {
  families_->running.Set(sample.running);
  families_->waiting.Set(sample.waiting);
  families_->paused.Set(sample.paused);
  families_->usage.Set(
      sample.block_count == 0 ? 0.0 : static_cast<double>(sample.held_blocks) / sample.block_count);
  families_->free_blocks.Set(sample.free_blocks);
  families_->cached_blocks.Set(sample.cached_blocks);
  families_->held_blocks.Set(sample.held_blocks);
  families_->reserved_slots.Set(static_cast<double>(sample.waste.reserved));
  families_->internal_slots.Set(static_cast<double>(sample.waste.internal));
  families_->external_slots.Set(static_cast<double>(sample.waste.external));
  families_->block_size.Set(sample.block_size);
  families_->block_count.Set(sample.block_count);
  families_->worker_up.Set(sample.replica_ready ? 1 : 0);
  families_->step_lag.Set(static_cast<double>(sample.step_lag));
  Follow(families_->prefix_queries, sample.prefix_query_tokens);
  Follow(families_->prefix_hits, sample.prefix_hit_tokens);
  Follow(families_->prefix_in_flight_hits, sample.prefix_in_flight_hit_tokens);
  Follow(families_->preemptions, sample.preemptions);
  Follow(families_->evictions, sample.evicted_blocks);
  Follow(families_->ignored_results, sample.ignored_results);
  Follow(families_->resyncs, sample.resyncs);
  Follow(families_->replica_losses, sample.replica_losses);
}

void Metrics::OnReadiness(bool ready) {
  if (on_readiness_) on_readiness_(ready);
}

std::string Metrics::Render() const {
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace octavo
