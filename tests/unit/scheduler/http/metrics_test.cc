#include "scheduler/http/metrics.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "scheduler/http/metrics_server.h"

namespace octavo {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MetricsTest, CountsWhatTheLoopReports) {
  Metrics metrics("m", {});
  metrics.OnAdmitted(7);
  metrics.OnTokens(1, true, absl::Milliseconds(30));
  metrics.OnTokens(1, false, absl::Milliseconds(5));
  metrics.OnStep({.row_count = 1, .token_count = 7, .duration = absl::Milliseconds(30)});
  metrics.OnRequestEnded({.outcome = "length",
                          .usage = {.prompt_tokens = 7, .completion_tokens = 2},
                          .max_tokens = 2,
                          .queue_time = absl::Milliseconds(1),
                          .prefill_time = absl::Milliseconds(29),
                          .decode_time = absl::Milliseconds(5),
                          .total_time = absl::Milliseconds(35)});
  metrics.OnRequestEnded({.outcome = "refused"});
  const std::string text = metrics.Render();
  EXPECT_THAT(text, HasSubstr("octavo_prompt_tokens_total{model_name=\"m\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("octavo_generation_tokens_total{model_name=\"m\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("octavo_requests_total{model_name=\"m\",outcome=\"length\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("octavo_requests_total{model_name=\"m\",outcome=\"refused\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("octavo_e2e_request_latency_seconds_count{model_name=\"m\"} 1\n"));
  EXPECT_THAT(
      text,
      HasSubstr("octavo_time_to_first_token_seconds_bucket{model_name=\"m\",le=\"0.04\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("outcome=\"deadline\"")));
}

TEST(MetricsTest, FollowsTheEnginesTotalsAndLevels) {
  Metrics metrics("m", {});
  LevelSample levels;
  levels.running = 3;
  levels.block_count = 10;
  levels.held_blocks = 4;
  levels.preemptions = 5;
  metrics.OnLevels(levels);
  levels.preemptions = 6;
  metrics.OnLevels(levels);
  const std::string text = metrics.Render();
  EXPECT_THAT(text, HasSubstr("octavo_num_requests_running{model_name=\"m\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("octavo_kv_cache_usage_ratio{model_name=\"m\"} 0.4\n"));
  EXPECT_THAT(text, HasSubstr("octavo_num_preemptions_total{model_name=\"m\"} 6\n"));
}

TEST(MetricsServerTest, ServesMetricsAndHealthOverHttp) {
  bool ready = false;
  auto server = MetricsServer::Start(
      "127.0.0.1:0", [] { return "octavo_x 1\n"; }, [&ready] { return ready; });
  ASSERT_TRUE(server.ok()) << server.status();
  httplib::Client client("http://" + (*server)->address());
  EXPECT_EQ(client.Get("/metrics")->body, "octavo_x 1\n");
  EXPECT_EQ(client.Get("/healthz")->status, 503);
  ready = true;
  EXPECT_EQ(client.Get("/healthz")->status, 200);
  EXPECT_EQ(client.Get("/elsewhere")->status, 404);
}

TEST(MetricsServerTest, RefusesAnAddressInUseAndOneItCannotRead) {
  auto first = MetricsServer::Start("127.0.0.1:0", [] { return ""; }, [] { return true; });
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(MetricsServer::Start((*first)->address(), [] { return ""; }, [] { return true; })
                .status()
                .code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(MetricsServer::Start(
                "nonsense", [] { return ""; }, [] { return true; })
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace octavo
