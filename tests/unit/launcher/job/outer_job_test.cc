#include "launcher/job/outer_job.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include "base/environment.h"

using namespace hvd::launcher;

TEST_CASE("outer job: a job that a rank starts does not take the outer job's settings") {
  const std::string listed = set_by_hvdrun(
      {{"HOROVOD_TIMELINE", "t.json"}, {"HVD_STATE_DIR", "/s=1"}, {"HVD_GRACE", "3"}, {"HVD_TWO", "a\nPATH=/x"}},
      {"HOROVOD_TIMELINE", "HVD_GRACE", "HVD_NONE", "HVD_STATE_DIR", "HVD_TWO"});
  CHECK(listed == "HOROVOD_TIMELINE=t.json\nHVD_GRACE=3\nHVD_STATE_DIR=/s=1");
  ::setenv("HVD_SET_BY_HVDRUN", listed.c_str(), 1);
  ::setenv("HOROVOD_TIMELINE", "t.json", 1);
  ::setenv("HVD_STATE_DIR", "/s=1", 1);
  ::setenv("HVD_GRACE", "5", 1);  // the program has changed it
  forget_outer_job();
  CHECK(hvd::environment_value("HOROVOD_TIMELINE") == nullptr);
  CHECK(hvd::environment_value("HVD_STATE_DIR") == nullptr);
  CHECK(std::string(hvd::environment_value("HVD_GRACE")) == "5");
  CHECK(hvd::environment_value("HVD_SET_BY_HVDRUN") == nullptr);
  forget_outer_job();  // outside of a rank
  ::unsetenv("HVD_GRACE");
}
