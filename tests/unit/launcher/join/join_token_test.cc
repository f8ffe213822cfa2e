#include "launcher/join/join_token.h"

#include <doctest/doctest.h>
#include <poll.h>

#include <string>

namespace hvd::launcher {
namespace {

/// Returns whether a host that uses the token @p host reaches a launcher with the token @p launcher within the time.
bool gets_in(const std::string& launcher, const std::string& host, int milliseconds) {
  const JoinKeys ours = join_keys_of(launcher), theirs = join_keys_of(host);
  const auto listener = wire::listen({"tcp://127.0.0.1:*"}, ours.launcher, ours.host.public_key);
  const auto connection = wire::connect({listener->addresses()[0], theirs.launcher.public_key}, theirs.host);
  for (int waited = 0; waited < milliseconds && !connection->connected(); waited += 10) {
    ::poll(nullptr, 0, 10);
    listener->receive();
  }
  return connection->connected();
}

TEST_CASE("the keys of a token are always the same, and no other token has them") {
  const JoinKeys one = join_keys_of("a"), again = join_keys_of("a"), other = join_keys_of("b");
  CHECK(one.launcher.secret_key == again.launcher.secret_key);
  CHECK(one.launcher.public_key == again.launcher.public_key);
  CHECK(one.launcher.secret_key != one.host.secret_key);
  CHECK(one.host.secret_key != other.host.secret_key);
  CHECK(one.launcher.public_key.find("a\n") == std::string::npos);
}

TEST_CASE("a host gets in with the launcher's token only") {
  const std::string token(40, 'x');
  CHECK(gets_in(token, token, 20000));
  CHECK_FALSE(gets_in(token, token + "y", 500));
}

}  // namespace
}  // namespace hvd::launcher
