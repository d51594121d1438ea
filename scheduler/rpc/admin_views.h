#pragma once

// The engine's records as messages of admin_service.proto. Pure functions.

#include "absl/time/time.h"
#include "octavo/v1/admin_service.pb.h"
#include "scheduler/core/introspection.h"
#include "scheduler/runtime/loop.h"

namespace octavo {

void EncodeState(const Loop& loop, v1::GetSchedulerStateResponse& message);
void EncodePool(const Engine& engine, v1::PoolState& message);
// `sampling` may be null: the request has ended.
void EncodeRequest(const RequestRecord& record, const SamplingParams* sampling, absl::Time now,
                   v1::RequestSummary& message);
// `completed`: the last step whose result was applied; content that it made valid, or an earlier
// one, is valid.
void EncodeBlock(const BlockRecord& record, StepNumber completed, v1::BlockDescription& message);
// `holders`: the requests that the cells may name.
void EncodePoolMap(const PoolMap& map, const std::vector<RequestRecord>& holders, absl::Time now,
                   v1::GetPoolMapResponse& message);
void EncodeStep(const StepRecord& record, bool with_tokens, v1::StepTraceEntry& message);

std::optional<BlockState> DecodeBlockState(v1::BlockState state);  // absent: unspecified

}  // namespace octavo
