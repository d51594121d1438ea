#pragma once

// A chat message by message, with its JSON parts, into the text its model expects. Pure function.

#include <string>

#include "absl/status/statusor.h"
#include "octavo/v1/generation_service.pb.h"
#include "scheduler/runtime/served_model.h"

namespace octavo {

// InvalidArgument naming the field: a limit of validation.h passed, JSON that is malformed or of
// another type, a role missing, a model without a template, or the template's own complaint.
absl::StatusOr<std::string> RenderChat(const v1::ChatPrompt& chat, const ServedModel& model);

}  // namespace octavo
