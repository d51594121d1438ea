#include "scheduler/core/hit_ratio_window.h"

namespace octavo {

void HitRatioWindow::Add(uint32_t requests, uint64_t queried_tokens, uint64_t hit_tokens) {
  entries_.push_back({requests, queried_tokens, hit_tokens});
  requests_ += requests;
  queried_ += queried_tokens;
  hit_ += hit_tokens;
  while (requests_ > most_ && entries_.size() > 1) {
    const Entry& oldest = entries_.front();
    requests_ -= oldest.requests;
    queried_ -= oldest.queried;
    hit_ -= oldest.hit;
    entries_.pop_front();
  }
}

}  // namespace octavo
