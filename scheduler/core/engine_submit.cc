// Engine: a request comes. What it must satisfy, and how it joins the queue.

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "glog/logging.h"
#include "scheduler/core/engine.h"
#include "scheduler/core/prefix_scope.h"

namespace octavo {
namespace {

uint32_t SequenceCount(const SubmitRequest& request) {
  return request.beams ? request.beams->width : request.sample_count;
}

}  // namespace

absl::Status Engine::CheckFits(uint32_t prompt_token_count, std::optional<uint32_t> max_tokens,
                               uint32_t sequence_count) const {
  if (!replica_) return absl::OkStatus();  // looked at again when there is a pool
  // The last token is never computed: nothing follows it.
  const uint64_t tokens = uint64_t{prompt_token_count} + max_tokens.value_or(1) - 1;
  const KvLayout& layout = replica_->ledger.layout();
  const uint32_t capacity = replica_->ledger.pool().capacity();
  // Whole prompt blocks stay shared, and all of them where nobody writes after the prompt.
  const uint64_t shared = tokens == prompt_token_count ? layout.BlocksFor(tokens)
                                                       : prompt_token_count / layout.block_size;
  const uint64_t needed = shared + sequence_count * (layout.BlocksFor(tokens) - shared);
  if (needed <= capacity) return absl::OkStatus();
  return WithReason(
      absl::FailedPreconditionError(absl::StrCat(
          "a prompt of ", prompt_token_count, " tokens",
          max_tokens ? absl::StrCat(" and max_tokens ", *max_tokens) : std::string(),
          sequence_count > 1 ? absl::StrCat(", ", sequence_count, " times,") : std::string(),
          " take ", needed, " blocks of ", layout.block_size, " tokens; the whole pool has ",
          capacity, ": shorten it, or start with a larger --num_blocks")),
      "CANNOT_FIT",
      {{"prompt_tokens", prompt_token_count},
       {"max_tokens", max_tokens.value_or(1)},
       {"needed_blocks", needed},
       {"block_size", layout.block_size},
       {"pool_blocks", capacity}});
}

absl::Status Engine::CheckSampleCount(const SubmitRequest& event) const {
  const uint32_t count = SequenceCount(event);
  const char* name = event.beams ? "beam_width" : "n";
  if (event.beams && (count < 2 || count > kMaxBeamWidth || event.sample_count != 1 ||
                      event.beams->returned < 1 || event.beams->returned > count)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "beam_width is ", count, ", ", event.beams->returned, " hypotheses are returned and n is ",
        event.sample_count, "; they must be 2 to ", kMaxBeamWidth, ", 1 to beam_width, and 1"));
  }
  if (event.beams && event.prompt_logprobs) {
    return absl::InvalidArgumentError("a beam search has no log-probabilities of its prompt");
  }
  if (count < 1 || count > kMaxSampleCount) {
    return absl::InvalidArgumentError(
        absl::StrCat("n is ", count, "; it must be 1 to ", kMaxSampleCount));
  }
  if (count > options_.max_sequences) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat(
            name, " is ", count, "; at most ", options_.max_sequences,
            " sequences run at once: ask for fewer, or start with a larger --max_sequences")),
        "TOO_MANY_SEQUENCES", {{"sequences", count}, {"limit", options_.max_sequences}});
  }
  if (count > 1 && options_.kv_policy != KvPolicy::kPaged) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", count, "; with --kv_policy=", KvPolicyName(options_.kv_policy),
                     ", under which sequences share no blocks, it must be 1"));
  }
  return absl::OkStatus();
}

absl::Status Engine::CheckSubmit(const SubmitRequest& event, absl::Time now) const {
  const uint64_t prompt = event.prompt.size();
  if (draining_) {
    return WithReason(absl::UnavailableError("the server is draining; use another one"),
                      "DRAINING");
  }
  if (prompt == 0) return absl::InvalidArgumentError("the prompt is empty; it needs a token");
  if (event.max_tokens == 0u) {
    return absl::InvalidArgumentError("max_tokens is 0; it must be at least 1");
  }
  if (prompt + event.max_tokens.value_or(1) > options_.context_length) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the prompt has ", prompt, " tokens and max_tokens is ",
        event.max_tokens ? absl::StrCat(*event.max_tokens) : std::string("at least 1"),
        "; together they may be at most the model's length of ", options_.context_length));
  }
  if (event.deadline <= now) {
    return WithReason(
        absl::DeadlineExceededError("the deadline had passed when the request arrived"),
        "DEADLINE_PASSED");
  }
  if (request_of_client_id_.contains(event.client_request_id)) {
    return WithReason(
        absl::AlreadyExistsError(absl::StrCat("a request with id \"", event.client_request_id,
                                              "\" is running; choose another id")),
        "DUPLICATE_REQUEST_ID", {{"request_id", event.client_request_id}});
  }
  OCTAVO_RETURN_IF_ERROR(CheckSampleCount(event));
  OCTAVO_RETURN_IF_ERROR(
      CheckFits(static_cast<uint32_t>(prompt), event.max_tokens, SequenceCount(event)));
  return CheckQueueHasRoom(prompt, now);
}

absl::Status Engine::CheckQueueHasRoom(uint64_t prompt_tokens, absl::Time now) const {
  // Worth coming back for is a part of the queue, not one place: others were refused too.
  constexpr uint32_t kShare = 10;
  if (waiting_count_ >= options_.max_waiting_requests) {
    const absl::Duration delay =
        drain_rate_.TimeForRequests(std::max(1u, options_.max_waiting_requests / kShare), now);
    return WithRetryDelay(
        WithReason(
            absl::ResourceExhaustedError(
                absl::StrCat("the queue is full: ", waiting_count_, " requests wait, the limit is ",
                             options_.max_waiting_requests, "; try again later")),
            "QUEUE_FULL",
            {{"waiting_requests", waiting_count_}, {"limit", options_.max_waiting_requests}}),
        delay);
  }
  if (waiting_tokens_ + prompt_tokens > options_.max_waiting_tokens) {
    const uint64_t excess = waiting_tokens_ + prompt_tokens - options_.max_waiting_tokens;
    const absl::Duration delay =
        drain_rate_.TimeForTokens(std::max(excess, options_.max_waiting_tokens / kShare), now);
    return WithRetryDelay(
        WithReason(absl::ResourceExhaustedError(absl::StrCat(
                       "the queue is full: ", waiting_tokens_, " prompt tokens wait, ",
                       prompt_tokens, " more exceed the limit of ", options_.max_waiting_tokens,
                       " (--max_waiting_tokens); try again later")),
                   "QUEUE_FULL",
                   {{"waiting_tokens", waiting_tokens_},
                    {"prompt_tokens", prompt_tokens},
                    {"limit", options_.max_waiting_tokens}}),
        delay);
  }
  return absl::OkStatus();
}

void Engine::On(SubmitRequest event, absl::Time now, Actions& actions) {
  CHECK(!requests_.contains(event.request_id))
      << "request " << event.request_id << " was submitted before";
  ++counters_.requests_submitted;
  if (absl::Status status = CheckSubmit(event, now); !status.ok()) {
    ++counters_.requests_refused;
    actions.push_back(RequestRefused{event.request_id, std::move(status)});
    return;
  }
  auto request = std::make_unique<Request>(Request{
      .id = event.request_id,
      .client_request_id = std::move(event.client_request_id),
      .prefix_scope = PrefixScope(event.cache_salt),
      .prompt_logprobs = event.prompt_logprobs,
      .no_cache = event.no_cache,
      .deadline = event.deadline,
      .submitted = now,
      .priority = event.priority,
      .prompt_token_count = static_cast<uint32_t>(event.prompt.size()),
      .seed = event.seed,
      .sample_count = SequenceCount(event),
      .unborn_count = SequenceCount(event) - 1,
  });
  Sequence sequence;
  // Sample i has the i-th of these ids and places in the order of arrival.
  sequence.id = SequenceId(last_sequence_id_.value() + 1);
  sequence.key = {event.priority, last_arrival_ + 1};
  last_sequence_id_ = SequenceId(last_sequence_id_.value() + request->sample_count);
  last_arrival_ += request->sample_count;
  sequence.request = request.get();
  sequence.seed = event.seed;
  sequence.prompt_token_count = static_cast<uint32_t>(event.prompt.size());
  sequence.stop =
      MakeStopRule(event.sampling.stop_token_ids, event.sampling.min_tokens, event.max_tokens,
                   sequence.prompt_token_count, options_.context_length);
  request->max_tokens = sequence.stop.max_tokens;
  sequence.sampling = std::move(event.sampling);
  sequence.tokens = std::move(event.prompt);
  if (event.beams) BeginBeams(*event.beams, sequence);
  if (waiting_count_ == 0) drain_rate_.Restart(now);
  ++waiting_count_;
  waiting_tokens_ += sequence.prompt_token_count;
  const QueueKey key = sequence.key;
  request->sequences = {sequences_.Add(std::move(sequence))};
  queue_.Push(key, request->sequences[0]);
  if (!request->client_request_id.empty()) {
    request_of_client_id_[request->client_request_id] = request->id;
  }
  if (request->deadline != absl::InfiniteFuture()) {
    deadlines_.emplace(request->deadline, request->id);
  }
  requests_[request->id] = std::move(request);
}

}  // namespace octavo
