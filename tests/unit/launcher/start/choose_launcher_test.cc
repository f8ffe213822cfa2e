#include "launcher/start/choose_launcher.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;

TEST_CASE("choose launcher: our own daemons where there is a libpmix; mpirun else, with a reason") {
  const auto there = [] { return std::string(); };
  const auto absent = [] { return std::string("no libpmix"); };
  CHECK(choose_launcher({}, there).kind == LauncherKind::daemons);
  CHECK(choose_launcher({.wants_mpirun = true}, there).why == "--launcher mpirun");
  CHECK(choose_launcher({.has_mpirun_arguments = true}, there).kind == LauncherKind::mpirun);
  CHECK(choose_launcher({}, absent).why == "no libpmix");
  CHECK(choose_launcher({}, absent).is_makeshift);
  CHECK(choose_launcher({.has_mpirun = false}, absent).kind == LauncherKind::daemons);  // the ranks may need no MPI
  bool asked = false;
  choose_launcher({.wants_mpirun = true}, [&] {
    asked = true;
    return std::string();
  });
  CHECK_FALSE(asked);
}
