#pragma once

// The last plans and what became of them, for GetStepTrace. Thread-compatible; holds at most
// `capacity` records.

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/step_plan.h"
#include "common/step_result.h"
#include "scheduler/core/introspection.h"

namespace octavo {

class StepTraceRing {
 public:
  explicit StepTraceRing(uint32_t capacity) : capacity_(capacity) {}

  void AddPlan(const StepPlan& plan, absl::Time now) {
    if (capacity_ == 0) return;
    if (records_.size() == capacity_) records_.pop_front();
    records_.push_back({.plan = plan, .planned = now});
  }
  // The plan of that number, if it is still here, has this result.
  void AddResult(StepResult result, absl::Time now) {
    for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
      if (record->plan.epoch != result.epoch || record->plan.step != result.step) continue;
      record->result = std::move(result);
      record->completed = now;
      return;
    }
  }
  // Every plan without a result is void.
  void RollBack() {
    for (StepRecord& record : records_) record.rolled_back |= !record.result.has_value();
  }
  std::vector<StepRecord> Last(uint32_t limit) const {
    const size_t count = records_.size() < limit ? records_.size() : limit;
    return {records_.end() - static_cast<std::ptrdiff_t>(count), records_.end()};
  }

 private:
  uint32_t capacity_;
  std::deque<StepRecord> records_;  // oldest first
};

}  // namespace octavo
