#include "tools/octavo/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

namespace octavo::cli {
namespace {

constexpr int kFatal = 2;

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() { Supervisor::BlockSignals(); }
  // What the children wrote, a word a line.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  }
  Child Shell(const std::string& name, const std::string& script) const {
    return {.name = name, .arguments = {"/bin/sh", "-c", script, name, file_}};
  }

  const std::string file_ = testing::TempDir() + "/supervisor_test_" +
                            testing::UnitTest::GetInstance()->current_test_info()->name();
  void SetUp() override { std::filesystem::remove(file_); }
};

TEST_F(SupervisorTest, RestartsAChildThatDiesAndStopsAtAFatalExitCode) {
  // Dies twice, by exit code and by signal; the third time it refuses its configuration.
  Supervisor supervisor({Shell("mortal",
                               "echo run >> $1; case $(wc -l < $1) in 1) exit 7;; 2) kill -9 $$;; "
                               "*) exit 2;; esac")});
  EXPECT_EQ(supervisor.Run(kFatal, [] {}), kFatal);
  EXPECT_EQ(Lines().size(), 3u);
}

TEST_F(SupervisorTest, StopsChildrenOneAfterTheOtherInOrder) {
  const std::string script = "trap 'echo $0 >> $1; exit 0' TERM; while :; do sleep 0.01; done";
  Supervisor supervisor({Shell("first", script), Shell("second", script)});
  int ticks = 0;
  EXPECT_EQ(supervisor.Run(kFatal,
                           [&] {
                             if (++ticks == 3) kill(getpid(), SIGTERM);
                           }),
            0);
  EXPECT_EQ(Lines(), (std::vector<std::string>{"first", "second"}));
}

TEST_F(SupervisorTest, AChildToldToEndBeforeItIsUpIsNoFailure) {
  Supervisor supervisor({Shell("early", "exec sleep 1000")});
  EXPECT_EQ(supervisor.Run(kFatal, [] { kill(getpid(), SIGTERM); }), 0);
}

TEST_F(SupervisorTest, AChildThatFailsWhileStoppingIsAFailure) {
  const std::string script = "trap 'exit 5' TERM; echo up >> $1; while :; do sleep 0.01; done";
  Supervisor supervisor({Shell("failing", script)});
  bool told = false;
  EXPECT_EQ(supervisor.Run(kFatal,
                           [&] {
                             if (!told && !Lines().empty()) told = kill(getpid(), SIGTERM) == 0;
                           }),
            1);
}

TEST_F(SupervisorTest, AProgramThatIsNotThereEndsTheRest) {
  Supervisor supervisor({Shell("first", "exec sleep 1000"),
                         {.name = "absent", .arguments = {"/nonexistent/program"}}});
  EXPECT_EQ(supervisor.Run(kFatal, [] {}), 1);
}

}  // namespace
}  // namespace octavo::cli
