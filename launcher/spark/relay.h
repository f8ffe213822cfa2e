/// @file relay.h — carries output and results from hvdrun's host to Spark's driver.
///
/// Two small programs share one connection of wire/channel/channel.h, authenticated and encrypted.  Spark hands over
/// the keys.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace hvd::launcher {

/// `hvdrun --relay-listen PID FD tcp://IP:PORT…` on the driver; PORT may be "*".  First line on stdout: JSON
/// {addresses, server_key, client_keys}.  Then the sender's stdout and stderr follow, and the results go to the
/// descriptor FD.  Ends after the sender's last piece, when the sender is gone, or when our parent, the process PID,
/// ends.
int relay_listen(const std::vector<std::string>& args);

/// `hvdrun --relay-send PID ADDRESS…` beside hvdrun, with HVD_RELAY_SERVER_KEY and HVD_RELAY_KEYS (public:secret).
/// stdin: pieces, each u8 stream (1 stdout, 2 stderr, 3 results), u32 length (little endian), bytes.
/// Returns 0 when the driver has all pieces; 4 when the driver cannot be reached, or is lost.
int relay_send(const std::vector<std::string>& args);

/// Removes the next whole piece from the front of @p waiting.  Returns it as a frame's body: u8 stream, then bytes.
/// Throws Error{usage} for a piece that is too long.
std::optional<std::string> take_piece(std::string& waiting);

}  // namespace hvd::launcher
