/// @file console.h — `hvdrun attach`, between hvdrun and a guard: one byte for the kind, then the text.
#pragma once

namespace hvd::wire {

/// The first byte of Type::console_input, hvdrun → guard.
enum class ConsoleInput : char {
  open = 'o',   ///< open a console in the rank
  text = 't',   ///< input of the user
  end = 'e',    ///< the input has ended
  leave = 'l',  ///< the user is gone
};

/// The first byte of Type::console, guard → hvdrun.
enum class ConsoleOutput : char {
  open = 'o',     ///< the rank has stopped in the debugger
  text = 't',     ///< output of Python's debugger
  refused = 'r',  ///< a ConsoleRefusal follows, then the system's error text, if any
  end = 'e',      ///< the console is closed and the rank goes on; also sent after `refused`
};

enum class ConsoleRefusal : char {
  absent = 'a',  ///< the rank does not run
  deaf = 'd',    ///< the rank does not handle the signal: it is no Python program that has imported hvd
  name = 'n',    ///< the name of the socket is taken
  busy = 'b',    ///< the rank has a console already
  native = 'c',  ///< the rank's main thread stayed in native code for too long
};

}  // namespace hvd::wire
