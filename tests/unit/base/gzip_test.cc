#include "base/files/gzip.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/file.h"

namespace hvd {
namespace {

Fd file_of(const std::string& content) {
  Fd file(memfd_create("gzip test", MFD_CLOEXEC));
  REQUIRE(write_all(file.get(), content));
  REQUIRE(lseek(file.get(), 0, SEEK_SET) == 0);
  return file;
}

std::string unpacked(const std::string& packed) {
  const Fd from = file_of(packed), to = file_of("");
  gunzip(from.get(), to.get());
  std::string content(static_cast<std::size_t>(lseek(to.get(), 0, SEEK_END)), '\0');
  REQUIRE(pread(to.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()));
  return content;
}

TEST_CASE("gzip: members one behind the other are their contents, and a cut-off one is read as far as it goes") {
  GzipMembers members;
  std::string packed, content;
  for (int i = 0; i < 50; ++i) {
    std::string text;
    for (int line = 0; line < i * i; ++line) text += "event " + std::to_string(line * i) + ",\n";
    packed += members.member(text);
    content += text;
  }
  CHECK(packed.size() < content.size() / 2);
  CHECK(unpacked(packed) == content);
  const std::string cut = unpacked(packed.substr(0, packed.size() - 100));
  CHECK(cut.size() < content.size());
  CHECK(content.starts_with(cut));
  std::string noise(300'000, '\0');  // larger than its source
  unsigned state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1103515245 + 12345) >> 16);
  CHECK(unpacked(std::string(members.member(noise))) == noise);
  CHECK(unpacked("no gzip at all").empty());
}

/// @p packed with a padding field in its header, so that it has @p bytes.
std::string padded(std::string packed, std::size_t bytes) {
  const std::size_t extra = bytes - packed.size() - 2;
  packed[3] |= 4;  // FEXTRA
  const std::string length{static_cast<char>(extra & 255), static_cast<char>(extra >> 8)};
  return packed.insert(10, length + std::string(extra, 'x'));
}

TEST_CASE("gzip: nothing is lost where a piece of the file just fills the output") {
  GzipMembers members;
  std::string text;
  for (int i = 0; text.size() < 256u << 10; ++i) text += "event " + std::to_string(i * 7919 % 1009) + " of a step,\n";
  text.resize(256 << 10);
  const std::string first = padded(std::string(members.member(text)), 64 << 10);
  REQUIRE(first.size() == 64 << 10);
  CHECK(unpacked(first + std::string(members.member("end\n"))) == text + "end\n");
}

}  // namespace
}  // namespace hvd
