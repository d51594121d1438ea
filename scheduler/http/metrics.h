#pragma once

// Prometheus metrics: samples of the loop in, the text format out. Names are vLLM's with the prefix
// octavo_, mended to promtool's rules (counters end in _total, no histogram does);
// scheduler/README.md maps them.
//
// Thread rule: LoopObserver's methods run on the loop; Render may run on any thread.

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "scheduler/runtime/ports.h"

namespace octavo {

class Metrics final : public LoopObserver {
 public:
  // `on_readiness` is called when the scheduler begins or ceases to be able to serve; it may be
  // empty.
  Metrics(const std::string& model_name, std::function<void(bool)> on_readiness);
  ~Metrics() override;

  void OnAdmitted(uint32_t prompt_tokens) override;
  void OnTokens(uint32_t count, bool first, absl::Duration since_last) override;
  void OnStep(const StepSample& sample) override;
  void OnRequestEnded(const RequestSample& sample) override;
  void OnSlowReader() override;
  void OnLevels(const LevelSample& sample) override;
  void OnReadiness(bool ready) override;

  // Everything in Prometheus' text format 0.0.4.
  std::string Render() const;

 private:
  struct Families;
  const std::unique_ptr<Families> families_;
  const std::function<void(bool)> on_readiness_;
};

}  // namespace octavo
