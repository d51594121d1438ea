// Whatever a client or an operator sends to the unary calls of GenerationService and AdminService:
// a reason that the caller can act on, or an answer that is true of the scheduler and that the
// caller can read. What only looks changes nothing; the engine's invariants hold. The input is one
// byte (which call), then the message. The scheduler holds a running, a waiting and an ended
// request.

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/model/utf8.h"
#include "common/wire/errors.h"
#include "common/wire/rpc_server.h"
#include "scheduler/rpc/admin_service.h"
#include "scheduler/rpc/generation_service.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/scheduler_world.h"

namespace octavo {
namespace {

constexpr uint32_t kBlocks = 32;

struct World : SchedulerWorld {
  explicit World(const ServedModel* served)
      : SchedulerWorld(served, Options()),
        model(*served),
        generation({}, served, &loop),
        admin({.limits = {{"max_sequences", "8"}}, .show_tokens = true}, served, &loop, &clock) {
    StartReplica(kBlocks);
    Submit("ended", 10, 1);
    Submit("running", 20);
    Submit("waiting", 4 * kBlocks - 8);
    Turn();
    AnswerHonestly();
  }

  // The call's status and answer. What was refused is the caller's fault, and says so; a field that
  // is wrong is named.
  template <typename Service, typename Request, typename Response>
  bool Ok(Service& service,
          grpc::ServerUnaryReactor* (Service::*handler)(grpc::CallbackServerContext*,
                                                        const Request*, Response*),
          const Request& request, Response& response) {
    const absl::Status status = wire::FromGrpc(Call(service, handler, request, response));
    CHECK(status.ok() || absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
          absl::IsFailedPrecondition(status))
        << status;
    CHECK_EQ(absl::IsInvalidArgument(status),
             status.GetPayload("type.googleapis.com/google.rpc.BadRequest").has_value())
        << status;
    return status.ok();
  }

  const ServedModel& model;
  GenerationService generation;
  AdminService admin;
};

bool IsLive(const std::string& name) { return name == "running" || name == "waiting"; }

// What a call that only looks must leave as it is.
auto Standing(const World& world) {
  const SchedulerState state = world.loop.engine().State();
  return std::array<uint64_t, 8>{state.waiting_requests, state.running_sequences,
                                 state.free_blocks,      state.cached_blocks,
                                 state.held_blocks,      state.table_digest,
                                 world.loop.draining(),  world.loop.session_count()};
}

void Check(World& world, const v1::TokenizeRequest& request) {
  v1::TokenizeResponse response;
  if (!world.Ok(world.generation, &GenerationService::Tokenize, request, response)) return;
  v1::DetokenizeRequest back;
  back.mutable_token_ids()->CopyFrom(response.token_ids());
  back.set_show_control_tokens(true);
  v1::DetokenizeResponse text;
  CHECK(world.Ok(world.generation, &GenerationService::Detokenize, back, text));
  CHECK(text.text() == (request.has_chat() ? response.rendered() : request.text()));
}

void Check(World& world, const v1::DetokenizeRequest& request) {
  v1::DetokenizeResponse response;
  if (!world.Ok(world.generation, &GenerationService::Detokenize, request, response)) return;
  for (const uint32_t id : request.token_ids()) CHECK_LE(id, static_cast<uint32_t>(kLastToken));
  CHECK(!FindInvalidUtf8(response.text()));
}

void Check(World& world, const v1::GetModelRequest& request) {
  v1::GetModelResponse response;
  if (world.Ok(world.generation, &GenerationService::GetModel, request, response))
    CHECK_EQ(response.block_count(), kBlocks);
}

void Check(World& world, const v1::AbortRequest& request) {
  std::set<std::string> live;
  for (const std::string& name : request.request_ids())
    if (IsLive(name)) live.insert(name);
  v1::AbortResponse response;
  if (world.Ok(world.generation, &GenerationService::Abort, request, response))
    CHECK_EQ(response.aborted_count(), live.size());
}

void Check(World& world, const v1::GetSchedulerStateRequest& request) {
  v1::GetSchedulerStateResponse response;
  CHECK(world.Ok(world.admin, &AdminService::GetSchedulerState, request, response));
  const v1::PoolState& pool = response.pools(0);
  CHECK_EQ(pool.free_blocks() + pool.cached_blocks() + pool.held_blocks(), kBlocks);
}

// The pages from here on: each at most as long as asked for, nothing twice, and from the first page
// on, with `all`, everything.
template <typename Request, typename Response, typename Handler, typename AddIds>
void CheckPages(World& world, Handler handler, Request request, std::optional<size_t> all,
                AddIds add_ids) {
  const size_t limit = request.page_size() == 0 ? 100 : request.page_size();
  const bool from_the_first = request.page_token().empty();
  Response response;
  if (!world.Ok(world.admin, handler, request, response)) return;
  std::set<std::string> seen;
  while (true) {
    const size_t before = seen.size();
    add_ids(response, seen);
    CHECK_LE(seen.size() - before, limit);
    if (response.next_page_token().empty()) break;
    CHECK(!seen.empty());
    request.set_page_token(response.next_page_token());
    response.Clear();
    CHECK(world.Ok(world.admin, handler, request, response));
  }
  if (all && from_the_first) CHECK_EQ(seen.size(), *all);
}

void Check(World& world, const v1::ListRequestsRequest& request) {
  CheckPages<v1::ListRequestsRequest, v1::ListRequestsResponse>(
      world, &AdminService::ListRequests, request, world.loop.session_count(),
      [](const v1::ListRequestsResponse& page, std::set<std::string>& seen) {
        for (const auto& it : page.requests()) CHECK(seen.insert(it.request_id()).second);
      });
}

void Check(World& world, const v1::ListBlocksRequest& request) {
  const bool filters = v1::BlockState_IsValid(request.state()) && request.state() != 0;
  CheckPages<v1::ListBlocksRequest, v1::ListBlocksResponse>(
      world, &AdminService::ListBlocks, request,
      filters ? std::nullopt : std::optional<size_t>(kBlocks),
      [&](const v1::ListBlocksResponse& page, std::set<std::string>& seen) {
        for (const auto& it : page.blocks()) {
          CHECK(seen.insert(std::to_string(it.block_id())).second);
          CHECK_LT(it.block_id(), kBlocks);
          if (filters) CHECK_EQ(it.state(), request.state());
        }
      });
}

void Check(World& world, const v1::GetRequestRequest& request) {
  const std::string& name = request.request_id();
  v1::GetRequestResponse response;
  const bool found = world.Ok(world.admin, &AdminService::GetRequest, request, response);
  CHECK_EQ(found, IsLive(name) || name == "ended");
  CHECK(!found || response.request().request_id() == name);
}

void Check(World& world, const v1::GetBlockTableRequest& request) {
  const std::string& name = request.request_id();
  v1::GetBlockTableResponse response;
  const bool found = world.Ok(world.admin, &AdminService::GetBlockTable, request, response);
  CHECK_EQ(found, IsLive(name) && request.layer_group() == 0);
  CHECK_EQ(!response.blocks().empty(), found && name == "running");
  for (const auto& block : response.blocks()) CHECK_EQ(block.state(), v1::BLOCK_STATE_HELD);
}

void Check(World& world, const v1::LookupPrefixRequest& request) {
  v1::LookupPrefixResponse response;
  if (!world.Ok(world.admin, &AdminService::LookupPrefix, request, response)) return;
  CHECK_LT(response.hit_tokens(), response.prompt_tokens());
  CHECK_EQ(response.blocks_size(),
           static_cast<int>(SmallLayout().BlocksFor(response.hit_tokens())));
}

void Check(World& world, const v1::GetStepTraceRequest& request) {
  v1::GetStepTraceResponse response;
  CHECK(world.Ok(world.admin, &AdminService::GetStepTrace, request, response));
  CHECK_LE(static_cast<uint32_t>(response.steps_size()),
           request.step_count() == 0 ? 16 : request.step_count());
  for (const auto& step : response.steps())
    CHECK(request.include_tokens() || step.plan().token_ids().empty());
}

void Check(World& world, const v1::CheckInvariantsRequest& request) {
  v1::CheckInvariantsResponse response;
  CHECK(world.Ok(world.admin, &AdminService::CheckInvariants, request, response));
  CHECK(response.violations().empty());
}

void Check(World& world, const v1::ResetPrefixCacheRequest& request) {
  v1::ResetPrefixCacheResponse response;
  CHECK(!world.Ok(world.admin, &AdminService::ResetPrefixCache, request, response));
}

void Check(World& world, const v1::DrainRequest& request) {
  v1::DrainResponse response;
  CHECK(world.Ok(world.admin, &AdminService::Drain, request, response));
  CHECK_EQ(response.remaining_requests(), 2u);
  CHECK_EQ(world.loop.draining(), !request.resume());
}

// Whether the world is as it was, so that it can serve the next input too.
template <typename Request, bool kOnlyLooks = true>
bool Serve(World& world, const std::string& message) {
  Request request;
  if (!request.ParseFromString(message)) return true;
  const auto before = Standing(world);
  Check(world, request);
  if (kOnlyLooks) CHECK(Standing(world) == before);
  return kOnlyLooks;
}

constexpr std::array kCalls = {
    Serve<v1::TokenizeRequest>,        Serve<v1::DetokenizeRequest>,
    Serve<v1::GetModelRequest>,        Serve<v1::AbortRequest, false>,
    Serve<v1::ListRequestsRequest>,    Serve<v1::ListBlocksRequest>,
    Serve<v1::GetRequestRequest>,      Serve<v1::GetBlockTableRequest>,
    Serve<v1::LookupPrefixRequest>,    Serve<v1::GetStepTraceRequest>,
    Serve<v1::CheckInvariantsRequest>, Serve<v1::ResetPrefixCacheRequest>,
    Serve<v1::DrainRequest, false>,    Serve<v1::GetSchedulerStateRequest>};

}  // namespace
}  // namespace octavo

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace octavo;
  static const ServedModel* const kModel = [] {
    wire::SilenceParser();
    FLAGS_minloglevel = google::FATAL;
    return new ServedModel(MakeServedModel());
  }();
  static auto world = std::make_unique<World>(kModel);
  ByteSource source({bytes, size});
  const auto call = kCalls[source.Below(kCalls.size())];
  if (!call(*world, source.Rest())) world = std::make_unique<World>(kModel);
  return 0;
}
