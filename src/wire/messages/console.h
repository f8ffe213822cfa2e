/// @file console.h — `hvdrun attach` between hvdrun and a guard: a letter, then bytes.
#pragma once

namespace hvd::wire {

/// The first byte of Type::console_input, hvdrun → guard.
enum class ConsoleInput : char {
  open = 'o',   ///< calls the rank
  text = 't',   ///< what the user has typed
  end = 'e',    ///< the user types no more
  leave = 'l',  ///< the user is gone
};

/// The first byte of Type::console, guard → hvdrun.
enum class ConsoleOutput : char {
  open = 'o',     ///< the rank has come, and stands still
  text = 't',     ///< what Python's debugger says
  refused = 'r',  ///< a ConsoleRefusal follows, and then what the system says of it, if anything
  end = 'e',      ///< the console is closed, the rank goes on; also where it was never open
};

enum class ConsoleRefusal : char {
  absent = 'a',  ///< the rank does not run
  deaf = 'd',    ///< it does not handle the signal: no Python program that has imported hvd
  name = 'n',    ///< the socket's name cannot be had
  busy = 'b',    ///< it has a console already
  native = 'c',  ///< its main thread did not come back to Python code in time
};

}  // namespace hvd::wire
