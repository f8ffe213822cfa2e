#include "launcher/join/join_token.h"

#include <sys/stat.h>

#include "base/error.h"
#include "base/files/sha256.h"
#include "base/files/trust.h"
#include "base/format.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

constexpr std::size_t least_letters = 32, most_bytes = 4096;
constexpr const char* how_to_make = "make one, for example: head -c 32 /dev/urandom | base64 > token; chmod 600 token";

}  // namespace

JoinKeys join_keys_of(const std::string& token) {
  const auto derived = [&](const char* whose) {
    return wire::KeyPair::derived_from(sha256_hex(std::string("hvdrun join 1\n") + whose + "\n" + token));
  };
  return {derived("launcher"), derived("host")};
}

JoinKeys join_keys(const Settings& settings) {
  const std::string path = settings.text("token-file");
  if (path.empty())
    throw Error(Code::usage, "--token-file", "hosts that join prove a token, and no file with one is named",
                how_to_make);
  const PathCheck found = look_at(path);
  if (!settings.flag("allow-writable")) found.need_trust(path);
  struct stat about {};
  if (found.fd && ::fstat(found.fd.get(), &about) == 0 && (about.st_mode & S_IROTH) != 0)
    throw Error(
        Code::usage, path, "every user of this host can read the token",
        "chmod o= " + printable(path) + "; in Kubernetes: defaultMode: 0440 of the Secret's volume, and fsGroup");
  const std::string text = read_found(found, path, most_bytes);
  const std::string token(trim(text));
  if (token.size() < least_letters || token.find_first_of(" \t\r\n") != std::string::npos)
    throw Error(Code::usage, path, formatted("holds no token: one word of at least {} letters", least_letters),
                how_to_make);
  return join_keys_of(token);
}

}  // namespace hvd::launcher
