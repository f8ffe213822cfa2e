/// @file main.cc — hvdrank: what mpirun starts for every rank.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "environment.h"
#include "guard.h"
#include "keeper.h"
#include "machine_here.h"
#include "stacks.h"

namespace {

/// A closed standard stream would give its number to the next file that is opened.
void open_standard_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) < 0) static_cast<void>(open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--version") == 0) {
    std::puts("hvdrank " HVD_VERSION);
    return 0;
  }
  if (argc > 1 && std::strcmp(argv[1], "--machine") == 0)
    _exit(hvd::rank::print_machine(hvd::rank::current_environment()));
  if (argc > 2 && std::strcmp(argv[1], "--native-stack") == 0) return hvd::rank::print_native_stack(std::atoi(argv[2]));
  open_standard_streams();
  try {
    const hvd::rank::Call call = hvd::rank::take_call();
    return hvd::rank::keep([&call] { return hvd::rank::run_guard(call); });
  } catch (const hvd::Error& e) {
    std::fprintf(stderr, "%s%s%s\n", e.what(), e.hint.empty() ? "" : "\n  ", e.hint.c_str());
    return static_cast<int>(e.code);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "hvdrank: %s\n", e.what());
    return static_cast<int>(hvd::Code::internal);
  }
}
