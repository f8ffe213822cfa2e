#include "pmix/server.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "base/environment.h"
#include "base/error.h"
#include "wire/channel/bounded_accept.h"

using namespace hvd;
using namespace std::chrono_literals;

namespace {

/// The calls that the fake libpmix got and has not answered.
struct {
  pmix_op_cbfunc_t done = nullptr;
  void* share = nullptr;
  const pmix_info_t* info = nullptr;
  std::string plugins;  ///< HWLOC_PLUGINS_PATH during init()
} late;

pmix_status_t make_text(const char* text, char** made) {
  *made = ::strdup(text);
  return PMIX_SUCCESS;
}

/// A fake libpmix that ends no call before the test orders it.
pmix::PmixLibrary slow_library() {
  pmix::PmixLibrary slow;
  slow.path = "slow";
  slow.init = [](pmix_server_module_t*, pmix_info_t*, std::size_t) {
    late.plugins = environment_value("HWLOC_PLUGINS_PATH");
    return PMIX_SUCCESS;
  };
  slow.finalize = [] { return PMIX_SUCCESS; };
  slow.generate_regex = make_text;
  slow.generate_ppn = make_text;
  slow.error_string = [](pmix_status_t) { return "failed"; };
  slow.register_nspace = [](const char*, int, pmix_info_t info[], std::size_t, pmix_op_cbfunc_t done, void* share) {
    late.done = done;
    late.share = share;
    late.info = info;
    return PMIX_SUCCESS;
  };
  return slow;
}

}  // namespace

TEST_CASE("PMIx server: libpmix may end a call after we have given it up; the environment is as before") {
  ::setenv("HWLOC_PLUGINS_PATH", "the user's", 1);
  ::unsetenv("HWLOC_COMPONENTS");
  const pmix::PmixLibrary slow = slow_library();
  {
    pmix::Server server(slow, "/nowhere", "here", ::getpid());
    wire::set_accept_check(nullptr);  // the other tests' connections are not PMIx's
    CHECK(late.plugins == "/nowhere");
    CHECK(std::string(environment_value("HWLOC_PLUGINS_PATH")) == "the user's");
    CHECK(environment_value("HWLOC_COMPONENTS") == nullptr);
    pmix::PmixJob job;
    job.name = "job";
    job.hosts = {{"here", {0, 1}}};
    CHECK_THROWS_WITH_AS(server.add(job, 5ms), doctest::Contains("register_nspace did not end in time"), Error);
    CHECK(std::string(late.info[0].key) == PMIX_NODE_MAP);  // the info that it got is still valid
    late.done(PMIX_SUCCESS, late.share);
  }
  ::unsetenv("HWLOC_PLUGINS_PATH");
}
