#pragma once

// Runs the commands of a golden trace (tests/golden/traces/*.txt) on a real engine and prints what
// it does. A trace is a list of
//
//   command
//   ----
//   what it prints
//
// separated by blank lines; lines that start with # are comments. Commands (NAME names a request):
//   engine [option=value …]        a new engine; options by their names in EngineOptions.
//                                  prefix_match_unit is 256 unless given: prefixes are shared in
//                                  whole blocks
//   ready blocks=N block_size=S    its replica has a pool; the epoch is one more than before
//   submit NAME prompt=RANGES [max=N] [priority=N] [salt=S] [stop=ID] [min=N] [deadline_ms=N]
//          [client_id=S] [n=N] [beams=W [returned=N] [early]] [scores] [no_cache]
//                                  RANGES: 0-47,1000-1006 are the token ids of the prompt
//   plan                           PlanNext once
//   complete [step=N] [NAME=ID …] [NAME=ID:SCORE,… …] [fail:NAME …]
//                                  the oldest step in flight (or N) is done; sampled tokens are
//                                  9000 + position unless given; alternatives of a beam, most
//                                  likely first, are 1, 2, … with log-probabilities of -1, -2, …
//                                  unless given, without the minus
//   repeat                         the last result comes once more
//   refuse [step=N] | lose         StepRefused, ReplicaLost
//   cancel NAME [reason=R] | stop_string NAME [sequence=I] [kept=N] | pause NAME | resume NAME
//   drain | reset | tick ms=N
//   run [steps=N]                  plan and complete, at most N times (100)
//   table NAME | queue | state | lookup prompt=RANGES [salt=S]
// Invariants are checked after every command; a violation is printed, so no expectation can hold
// it.

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "scheduler/core/engine.h"

namespace octavo {

class TraceRunner {
 public:
  // What the command prints, each line ended by a newline.
  std::string Run(const std::string& command);

 private:
  struct Command {
    std::string verb;
    std::vector<std::string> names;             // bare words
    std::map<std::string, std::string> values;  // key=value
    uint32_t Number(const std::string& key, uint32_t absent) const;
    bool Has(const std::string& word) const;
  };

  static Command Parse(const std::string& line);
  std::string Dispatch(const Command& command);
  void NewEngine(const Command& command);
  void Ready(const Command& command);
  void Submit(const Command& command);
  void Complete(const Command& command);
  std::string Inspect(const Command& command) const;
  std::string Print();
  std::string PrintPlan(const StepPlan& plan) const;
  std::string Name(SequenceId sequence) const;
  // Names a beam that is new, and remembers how many alternatives the sequence asks for.
  void NoteStart(const SequenceStart& start);
  static std::vector<TokenLogprob> Alternatives(uint32_t count, const Command& command,
                                                const std::string& name);

  std::optional<Engine> engine_;
  absl::Time now_ = absl::UnixEpoch();
  std::vector<Action> actions_;
  std::deque<StepPlan> in_flight_;
  std::optional<StepResult> last_result_;
  uint64_t epoch_ = 0;
  std::map<std::string, RequestId> requests_;
  std::map<RequestId, std::string> names_;
  std::map<SequenceId, std::string> sequence_names_;  // later beams of a: a~1, a~2, …
  std::map<std::string, uint32_t> beam_counts_;
  std::map<SequenceId, uint32_t> top_counts_;
};

// The text of a trace with every expectation replaced by what the engine really prints.
std::string ReplayTrace(const std::string& text);

}  // namespace octavo
