#include "worker/rpc/execute_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/status_reason.h"
#include "common/wire/errors.h"
#include "common/wire/step_codec.h"

namespace octavo {
namespace {

// A refusal as the protocol words it: ErrorInfo names epoch and step and, for a digest, both
// values.
absl::Status ExplainRefusal(absl::Status status, Epoch epoch, StepNumber step) {
  StatusReason why = TakeReason(status).value_or(StatusReason{.reason = "PLAN_REFUSED"});
  why.numbers["epoch"] = absl::StrCat(epoch.value());
  why.numbers["step"] = absl::StrCat(step.value());
  return WithReason(std::move(status), why);
}

}  // namespace

std::shared_ptr<ExecuteStream> ExecuteStream::Start(WorkerHost& host,
                                                    std::function<void()> on_plan) {
  std::shared_ptr<ExecuteStream> stream(new ExecuteStream(host, std::move(on_plan)));
  {
    absl::MutexLock lock(&stream->mutex_);
    stream->self_ = stream;
  }
  stream->StartRead(&stream->request_);
  return stream;
}

void ExecuteStream::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!end_.has_value()) end_ = status;
  Proceed();
}

void ExecuteStream::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::OkStatus());  // the scheduler closed its side
    return;
  }
  on_plan_();
  absl::StatusOr<StepPlan> plan = wire::DecodePlan(request_.plan());
  if (!plan.ok()) {
    End(ExplainRefusal(plan.status(), Epoch(request_.plan().epoch()),
                       StepNumber(request_.plan().step())));
    return;
  }
  std::shared_ptr<ExecuteStream> self;
  {
    absl::MutexLock lock(&mutex_);
    if (end_.has_value()) return;
    ++unanswered_;
    self = self_;
  }
  host_.Submit(*plan,
               [self, epoch = plan->epoch, step = plan->step](absl::StatusOr<StepResult> result) {
                 self->Answer(epoch, step, std::move(result));
               });
  absl::MutexLock lock(&mutex_);
  if (!end_.has_value()) StartRead(&request_);
}

void ExecuteStream::Answer(Epoch epoch, StepNumber step, absl::StatusOr<StepResult> result) {
  absl::MutexLock lock(&mutex_);
  --unanswered_;
  if (result.ok()) {
    wire::EncodeResult(*result, *responses_.emplace_back().mutable_result());
  } else if (!end_.has_value()) {
    end_ = ExplainRefusal(result.status(), epoch, step);
  }
  Proceed();
}

void ExecuteStream::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  writing_ = false;
  responses_.pop_front();
  if (!ok) gone_ = true;
  Proceed();
}

void ExecuteStream::OnCancel() {
  absl::MutexLock lock(&mutex_);
  gone_ = true;
  if (!end_.has_value()) end_ = absl::CancelledError("the scheduler left");
  Proceed();
}

void ExecuteStream::Proceed() {
  if (writing_ || finished_) return;
  if (!responses_.empty() && !gone_) {
    writing_ = true;
    StartWrite(&responses_.front());
    return;
  }
  if (end_.has_value() && unanswered_ == 0) {
    finished_ = true;
    Finish(wire::ToGrpc(*end_));
  }
}

void ExecuteStream::OnDone() {
  // Declared before the lock, so released after it: dropping the last reference destroys the mutex
  // too.
  std::shared_ptr<ExecuteStream> self;
  absl::MutexLock lock(&mutex_);
  self.swap(self_);
}

}  // namespace octavo
