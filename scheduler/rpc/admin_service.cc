#include "scheduler/rpc/admin_service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "scheduler/rpc/admin_views.h"
#include "scheduler/rpc/loop_call.h"
#include "scheduler/rpc/validation.h"

namespace octavo {
namespace {

constexpr uint32_t kDefaultPage = 100;
constexpr uint32_t kMaxRequestPage = 1'000;
constexpr uint32_t kMaxBlockPage = 10'000;
constexpr uint32_t kDefaultSteps = 16;
constexpr uint32_t kDefaultCells = 1'024;
constexpr uint32_t kMaxCells = 65'536;

// The value of `field`: 0 means `otherwise`.
absl::StatusOr<uint32_t> SizeOr(const char* field, uint32_t given, uint32_t otherwise,
                                uint32_t limit) {
  if (given > limit) {
    return wire::InvalidField(field,
                              absl::StrCat(field, " is ", given, "; it must be at most ", limit));
  }
  return given == 0 ? otherwise : given;
}

absl::StatusOr<uint32_t> PageSize(uint32_t given, uint32_t limit) {
  return SizeOr("page_size", given, kDefaultPage, limit);
}

// Requests by arrival: their ids rise with it.
std::vector<RequestRecord> InOrderOfArrival(std::vector<RequestRecord> records) {
  std::sort(records.begin(), records.end(), [](const RequestRecord& a, const RequestRecord& b) {
    return a.request_id < b.request_id;
  });
  return records;
}

// Page tokens are the last id of the page before, in decimal.
absl::StatusOr<uint64_t> PageStart(const std::string& token) {
  uint64_t start = 0;
  if (!token.empty() && !absl::SimpleAtoi(token, &start)) {
    return wire::InvalidField("page_token", "page_token is not one that a previous response gave");
  }
  return start;
}

absl::Status CheckReplica(uint32_t replica_id, uint32_t layer_group) {
  if (replica_id != 0) {
    return wire::InvalidField(
        "replica_id", absl::StrCat("replica_id is ", replica_id, "; there is only replica 0"));
  }
  if (layer_group != 0) {
    return wire::InvalidField("layer_group", absl::StrCat("layer_group is ", layer_group,
                                                          "; there is only layer group 0"));
  }
  return absl::OkStatus();
}

absl::Status NoSuchRequest(const std::string& name) {
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "request \"", name, "\" is neither live nor among the last that ended")),
                    "UNKNOWN_REQUEST_ID", {{"request_id", name}});
}

absl::Status NoSuchSequence(const v1::GetBlockTableRequest& request) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("request \"", request.request_id(), "\" has no sequence ",
                                       request.sequence_index(),
                                       " that lives; GetRequest lists them")),
      "UNKNOWN_SEQUENCE",
      {{"request_id", request.request_id()}, {"sequence_index", request.sequence_index()}});
}

}  // namespace

AdminService::AdminService(AdminServiceOptions options, const ServedModel* model, Loop* loop,
                           const Clock* clock)
    : options_(std::move(options)), model_(model), loop_(loop), clock_(clock) {}

grpc::ServerUnaryReactor* AdminService::GetSchedulerState(grpc::CallbackServerContext* context,
                                                          const v1::GetSchedulerStateRequest*,
                                                          v1::GetSchedulerStateResponse* response) {
  return AnswerOnLoop(context, loop_, [this, response] {
    EncodeState(*loop_, *response);
    response->set_model(model_->name);
    response->mutable_limits()->insert(options_.limits.begin(), options_.limits.end());
    response->set_uptime_seconds(absl::ToDoubleSeconds(clock_->Now() - options_.started));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::ListRequests(grpc::CallbackServerContext* context,
                                                     const v1::ListRequestsRequest* request,
                                                     v1::ListRequestsResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const uint32_t page_size,
                            PageSize(request->page_size(), kMaxRequestPage));
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t after, PageStart(request->page_token()));
    // The last id of a page stays a place in the order of arrival, whatever ends meanwhile.
    const std::vector<RequestRecord> records =
        InOrderOfArrival(loop_->engine().ListRequests(0, UINT32_MAX));
    uint64_t last = 0;
    for (const RequestRecord& record : records) {
      if (record.request_id.value() <= after) continue;
      if (response->requests_size() == static_cast<int>(page_size)) {
        response->set_next_page_token(absl::StrCat(last));
        break;
      }
      const Session* session = loop_->FindSession(record.request_id);
      EncodeRequest(record, session == nullptr ? nullptr : &session->options().sampling,
                    clock_->Now(), *response->add_requests());
      last = record.request_id.value();
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::GetRequest(grpc::CallbackServerContext* context,
                                                   const v1::GetRequestRequest* request,
                                                   v1::GetRequestResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response] {
    const auto record = loop_->engine().FindRequest(absl::string_view(request->request_id()));
    if (!record) return NoSuchRequest(request->request_id());
    const Session* session = loop_->FindSession(record->request_id);
    EncodeRequest(*record, session == nullptr ? nullptr : &session->options().sampling,
                  clock_->Now(), *response->mutable_request());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::GetBlockTable(grpc::CallbackServerContext* context,
                                                      const v1::GetBlockTableRequest* request,
                                                      v1::GetBlockTableResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckReplica(0, request->layer_group()));
    const Engine& engine = loop_->engine();
    const auto record = engine.FindRequest(absl::string_view(request->request_id()));
    if (!record) return NoSuchRequest(request->request_id());
    const std::vector<BlockTableRecord> tables = engine.BlockTablesOf(record->request_id);
    if (tables.empty()) {
      return WithReason(absl::NotFoundError(absl::StrCat("request \"", request->request_id(),
                                                         "\" has ended and holds no blocks")),
                        "REQUEST_ENDED", {{"request_id", request->request_id()}});
    }
    const auto table = std::find_if(tables.begin(), tables.end(), [&](const BlockTableRecord& it) {
      return it.sequence_index == request->sequence_index();
    });
    if (table == tables.end()) return NoSuchSequence(*request);
    const StepNumber completed = engine.State().last_completed_step;
    response->set_replica_id(table->replica_id.value());
    response->set_layer_group(table->layer_group.value());
    response->set_block_size(table->block_size);
    for (const SequenceRecord& sequence : record->sequences) {
      if (sequence.sequence_index == table->sequence_index)
        response->set_computed_tokens(sequence.computed_token_count);
    }
    for (const BlockTableEntry& entry : table->entries) {
      const std::vector<BlockRecord> block = engine.ListBlocks(entry.block.value(), 1);
      EncodeBlock(block.at(0), completed, *response->add_blocks());
      response->mutable_blocks()->rbegin()->set_token_count(entry.filled_token_count);
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::ListBlocks(grpc::CallbackServerContext* context,
                                                   const v1::ListBlocksRequest* request,
                                                   v1::ListBlocksResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckReplica(request->replica_id(), request->layer_group()));
    OCTAVO_ASSIGN_OR_RETURN(const uint32_t page_size,
                            PageSize(request->page_size(), kMaxBlockPage));
    OCTAVO_ASSIGN_OR_RETURN(const uint64_t start, PageStart(request->page_token()));
    const SchedulerState state = loop_->engine().State();
    if (start > state.capacity_blocks) {
      return wire::InvalidField("page_token",
                                "page_token is not one that a previous response gave");
    }
    const auto wanted = DecodeBlockState(request->state());
    // A page's worth at a time: a page of a large pool does not list the rest of it.
    for (uint64_t first = start; first < state.capacity_blocks; first += page_size) {
      for (const BlockRecord& block :
           loop_->engine().ListBlocks(static_cast<uint32_t>(first), page_size)) {
        if (wanted && block.state != *wanted) continue;
        if (response->blocks_size() == static_cast<int>(page_size)) {
          response->set_next_page_token(absl::StrCat(block.block.value()));
          return absl::OkStatus();
        }
        EncodeBlock(block, state.last_completed_step, *response->add_blocks());
      }
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::GetPoolMap(grpc::CallbackServerContext* context,
                                                   const v1::GetPoolMapRequest* request,
                                                   v1::GetPoolMapResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response]() -> absl::Status {
    OCTAVO_RETURN_IF_ERROR(CheckReplica(request->replica_id(), request->layer_group()));
    OCTAVO_ASSIGN_OR_RETURN(const uint32_t max_cells,
                            SizeOr("max_cells", request->max_cells(), kDefaultCells, kMaxCells));
    const Engine& engine = loop_->engine();
    EncodePool(engine, *response->mutable_pool());
    // Who holds blocks runs, and who runs is listed first.
    std::vector<RequestRecord> holders =
        InOrderOfArrival(engine.ListRequests(0, engine.State().running_sequences));
    std::erase_if(holders, [](const RequestRecord& record) { return record.block_count == 0; });
    if (holders.size() > kMaxRequestPage) holders.resize(kMaxRequestPage);
    EncodePoolMap(engine.MapPool(max_cells), holders, clock_->Now(), *response);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::LookupPrefix(grpc::CallbackServerContext* context,
                                                     const v1::LookupPrefixRequest* request,
                                                     v1::LookupPrefixResponse* response) {
  absl::StatusOr<std::vector<TokenId>> tokens = ParseLookup(*request, *model_);
  if (!tokens.ok()) return AnswerNow(context, tokens.status());
  return AnswerOnLoop(context, loop_, [this, request, response, tokens = *std::move(tokens)] {
    const Engine& engine = loop_->engine();
    const PrefixLookup lookup = engine.LookupPrefix(tokens, request->cache_salt());
    response->set_prompt_tokens(static_cast<uint32_t>(tokens.size()));
    response->set_hit_tokens(lookup.hit_token_count);
    const StepNumber completed = engine.State().last_completed_step;
    for (const BlockId block : lookup.blocks) {
      EncodeBlock(engine.ListBlocks(block.value(), 1).at(0), completed, *response->add_blocks());
    }
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::GetStepTrace(grpc::CallbackServerContext* context,
                                                     const v1::GetStepTraceRequest* request,
                                                     v1::GetStepTraceResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response] {
    const uint32_t count = request->step_count() == 0 ? kDefaultSteps : request->step_count();
    const bool with_tokens = request->include_tokens() && options_.show_tokens;
    for (const StepRecord& step : loop_->engine().StepTrace(count))
      EncodeStep(step, with_tokens, *response->add_steps());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::CheckInvariants(grpc::CallbackServerContext* context,
                                                        const v1::CheckInvariantsRequest*,
                                                        v1::CheckInvariantsResponse* response) {
  return AnswerOnLoop(context, loop_, [this, response] {
    const absl::Status proved = loop_->engine().CheckInvariants();
    if (!proved.ok()) response->add_violations(std::string(proved.message()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::ResetPrefixCache(grpc::CallbackServerContext* context,
                                                         const v1::ResetPrefixCacheRequest*,
                                                         v1::ResetPrefixCacheResponse* response) {
  return AnswerOnLoop(context, loop_, [this, response]() -> absl::Status {
    OCTAVO_ASSIGN_OR_RETURN(const uint32_t cleared, loop_->ResetPrefixes());
    response->set_cleared_blocks(cleared);
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* AdminService::Drain(grpc::CallbackServerContext* context,
                                              const v1::DrainRequest* request,
                                              v1::DrainResponse* response) {
  return AnswerOnLoop(context, loop_, [this, request, response] {
    loop_->SetDraining(!request->resume());
    response->set_remaining_requests(static_cast<uint32_t>(loop_->session_count()));
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::WatchKvEventsResponse>* AdminService::WatchKvEvents(
    grpc::CallbackServerContext*, const v1::WatchKvEventsRequest* request) {
  const auto stream = KvEventStream::Create({.include_tokens = request->include_tokens(),
                                             .block_size = loop_->options().fleet.layout.block_size,
                                             .max_unsent_bytes = options_.max_unsent_event_bytes});
  absl::Status status;
  if (request->include_tokens() && !options_.kv_event_tokens) {
    status = WithReason(
        absl::FailedPreconditionError("include_tokens is set, but token ids can be read back as "
                                      "prompts and completions: start the scheduler with "
                                      "--kv_event_tokens, or watch without them"),
        "TOKENS_NOT_SHOWN");
  } else {
    status = loop_->Call([this, stream] {
      if (absl::Status added = loop_->kv_publisher().Add(stream); !added.ok())
        stream->End(std::move(added));
    });
  }
  if (!status.ok()) stream->End(std::move(status));
  return stream.get();
}

}  // namespace octavo
