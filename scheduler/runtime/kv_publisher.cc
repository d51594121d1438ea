#include "scheduler/runtime/kv_publisher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_reason.h"

namespace octavo {
namespace {

absl::Status TooFarBehind() {
  return WithReason(absl::ResourceExhaustedError(
                        "the watcher reads too slowly: events that it has not taken were "
                        "dropped; watch again for a new snapshot"),
                    "SLOW_WATCHER");
}

}  // namespace

absl::Status KvPublisher::Add(std::shared_ptr<KvEventSink> watcher) {
  Publish();  // the snapshot is of now: what came before is for the others
  if (watchers_.size() >= kMaxKvWatchers) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          kMaxKvWatchers, " watchers of KV events are there, the limit; end one")),
                      "TOO_MANY_WATCHERS", {{"limit", kMaxKvWatchers}});
  }
  engine_->RecordKvEvents(true);
  watcher->Write(std::make_shared<const std::vector<KvEvent>>(engine_->KvSnapshot()));
  watchers_.push_back(std::move(watcher));
  return absl::OkStatus();
}

void KvPublisher::Publish() {
  if (watchers_.empty()) return;
  std::erase_if(watchers_, [](const auto& watcher) { return watcher->gone(); });
  std::vector<KvEvent> events = engine_->TakeKvEvents();
  if (!events.empty()) {
    const auto shared = std::make_shared<const std::vector<KvEvent>>(std::move(events));
    std::erase_if(watchers_, [&](const auto& watcher) {
      if (watcher->Write(shared)) return false;
      watcher->End(TooFarBehind());
      return true;
    });
  }
  if (watchers_.empty()) engine_->RecordKvEvents(false);
}

void KvPublisher::EndAll(const absl::Status& status) {
  Publish();
  for (const auto& watcher : std::exchange(watchers_, {})) watcher->End(status);
  engine_->RecordKvEvents(false);
}

}  // namespace octavo
