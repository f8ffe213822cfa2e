#include "launcher/start/choose_launcher.h"

#include <doctest/doctest.h>

using namespace hvd::launcher;

TEST_CASE("choose launcher: our own daemons, but where mpirun is asked for") {
  CHECK(choose_launcher({}).kind == LauncherKind::daemons);
  CHECK(choose_launcher({.wants_mpirun = true}).why == "--launcher mpirun");
  CHECK(choose_launcher({.has_mpirun_arguments = true}).kind == LauncherKind::mpirun);
}
