/// Registered memory: the arena, and allreduces straight between the ranks' arrays.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "memory/arena.h"
#include "world_of_threads.h"

using namespace hvd;
using namespace hvd::testing;
using memory::Arena;

namespace {

/// A tensor in registered memory, or in private memory.
class Tensor {
 public:
  Tensor(std::size_t bytes, bool registered) : bytes_(bytes) {
    if (registered) data_ = Arena::process().allocate(bytes);
    if (!data_) {
      plain_.resize(bytes + 1);
      data_ = plain_.data();
    }
  }
  Tensor(Tensor&& o) noexcept : bytes_(o.bytes_), data_(std::exchange(o.data_, nullptr)), plain_(std::move(o.plain_)) {}
  ~Tensor() {
    if (data_ && plain_.empty()) Arena::process().free(data_);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
  std::vector<char> plain_;
};

const std::vector<Split> registered_splits = worlds({{1, 0}, {2, 0}, {3, 0}, {4, 2}});

float value(int rank, std::size_t i) { return 1.0f / static_cast<float>(1 + i % 977 + static_cast<std::size_t>(rank)); }

}  // namespace

TEST_CASE("arena: zeroed, page-aligned, found by its offset, given back") {
  Arena arena;
  REQUIRE(arena.base() != nullptr);
  std::vector<unsigned char*> all;
  for (std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{70000}, std::size_t{1} << 20}) {
    auto* p = static_cast<unsigned char*>(arena.allocate(bytes));
    REQUIRE(p != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % 4096 == 0);
    CHECK(std::all_of(p, p + bytes, [](unsigned char c) { return c == 0; }));
    std::memset(p, 0xff, bytes);
    CHECK(arena.offset(p, bytes) == static_cast<std::uint64_t>(p - arena.base()));
    all.push_back(p);
  }
  int local = 0;
  CHECK(!arena.offset(&local, 4));
  CHECK(!arena.offset(nullptr, 0));
  CHECK(!arena.offset(arena.base() - 1, 1));
  CHECK(!arena.offset(all[1], ~std::size_t{0}));
  CHECK(!arena.free(&local));
  for (unsigned char* p : all) CHECK(arena.free(p));
  CHECK(arena.free(all[0]));  // twice: ignored
  // The holes have been merged, and the written bytes are gone.
  auto* p = static_cast<unsigned char*>(arena.allocate(std::size_t{1} << 20));
  CHECK(p == all[0]);
  CHECK(p[0] == 0);
  CHECK(p[70000] == 0);
  CHECK(arena.free(p));
  CHECK(arena.allocate(~std::size_t{0} - 5000) == nullptr);
}

TEST_CASE("arena: mapped twice, one memory") {
  Arena arena;
  auto* p = static_cast<int*>(arena.allocate(8192));
  REQUIRE(p != nullptr);
  memory::ArenaName name = arena.name();
  // The child releases as another process does: the fork only gives it another pid.
  p[1] = 7;
  const pid_t child = fork();
  if (child == 0) {
    auto base = memory::map_arena(name);
    name.inode += 1;
    const bool right = base && base.get() != arena.base() && !memory::map_arena(name) && !arena.allocate(1);
    arena.free(p);  // memory of the parent: nothing happens
    if (right) reinterpret_cast<int*>(base.get() + *arena.offset(p, 4))[2] = p[1] + 1;
    _exit(right ? 0 : 1);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(p[1] == 7);
  CHECK(p[2] == 8);
  CHECK(memory::map_arena({}) == nullptr);
  CHECK(arena.free(p));
}

TEST_CASE("registered: the same bits as from private memory, whatever part of the ranks has it") {
  for (const Split& s : registered_splits)
    run_world(s.size, s.per_node, [](Rank& rank) {
      for (std::size_t count : {std::size_t{3000}, std::size_t{30011}}) {
        const auto elements = static_cast<std::int64_t>(count);
        Tensor plain(count * 4, false), mine(count * 4, true), out(count * 4, true);
        const std::string name = "t" + std::to_string(count);
        auto fill = [&](const Tensor& t) {
          for (std::size_t i = 0; i < count; ++i) t.as<float>()[i] = value(rank.rank(), i);
        };
        fill(plain);
        hvd_request q = Rank::request(HVD_ALLREDUCE, "plain", {elements}, plain.as<float>(), plain.as<float>(), HVD_F32,
                                      HVD_AVERAGE);
        q.prescale = 0.3;
        q.postscale = 1.7;
        EXPECT(rank.run(q) == HVD_OK);
        q.name = name.c_str();
        for (int round = 0; round < 8; ++round) {
          // All ranks registered; one rank not; out of place; one rank in place and the others not.
          const int kind = round % 4;
          const bool lacks = kind == 1 && rank.rank() == round % rank.size();
          const bool apart = kind == 2 || (kind == 3 && rank.rank() > 0);
          Tensor other(count * 4, false);
          const Tensor& in = lacks ? other : mine;
          const Tensor& to = apart ? out : in;
          fill(in);
          if (apart) std::memset(to.as<char>(), 0x55, to.bytes());
          q.in = in.as<float>();
          q.out = to.as<float>();
          EXPECT(rank.run(q) == HVD_OK);
          EXPECT(std::memcmp(to.as<char>(), plain.as<char>(), count * 4) == 0);
          if (apart) EXPECT(in.as<float>()[count - 1] == value(rank.rank(), count - 1));
        }
      }
    });
}

TEST_CASE("registered: every dtype, and many in a batch with private ones between them") {
  const hvd_dtype dtypes[] = {HVD_U8,   HVD_I16,  HVD_I32,    HVD_I64,    HVD_F16, HVD_F32, HVD_F64,
                              HVD_BOOL, HVD_BF16, HVD_F8E4M3, HVD_F8E5M2, HVD_U32, HVD_C64};
  for (const Split& s : registered_splits)
    run_world(s.size, s.per_node, [&](Rank& rank) {
      constexpr int count = 22;
      std::vector<Tensor> mixed, plain;
      std::vector<std::string> names;
      std::vector<std::int64_t> elements;
      for (int i = 0; i < count; ++i) {
        elements.push_back(1 + i * i * 40);
        const auto bytes = static_cast<std::size_t>(elements.back()) * 8;
        mixed.emplace_back(bytes, i % 3 != 0 || (i % 2 && rank.rank()));
        plain.emplace_back(bytes, false);
        names.push_back("m" + std::to_string(i));
      }
      auto run = [&](std::vector<Tensor>& tensors, const char* prefix) {
        std::vector<core::Operation*> ops;
        std::vector<std::string> full;
        for (int i = 0; i < count; ++i) full.push_back(prefix + names[static_cast<std::size_t>(i)]);
        for (int j = 0; j < count; ++j) {
          const auto i = static_cast<std::size_t>((j * 7 + rank.rank() * 3) % count);
          std::memset(tensors[i].as<char>(), 0, tensors[i].bytes());
          for (std::int64_t e = 0; e < elements[i]; ++e)
            tensors[i].as<char>()[e] = static_cast<char>((e + rank.rank()) % 5);
          ops.push_back(&rank.submit(Rank::request(HVD_ALLREDUCE, full[i].c_str(), {elements[i]}, tensors[i].as<char>(),
                                                   tensors[i].as<char>(), dtypes[i % 13], HVD_SUM)));
        }
        for (core::Operation* op : ops) EXPECT(rank.finish(*op) == HVD_OK);
      };
      run(plain, "p");
      for (int round = 0; round < 3; ++round) {
        run(mixed, "r");
        for (std::size_t i = 0; i < count; ++i)
          EXPECT(std::memcmp(mixed[i].as<char>(), plain[i].as<char>(), mixed[i].bytes()) == 0);
      }
    });
}

TEST_CASE("registered: memory that comes and goes while others work, and that outlives the runtime") {
  constexpr std::size_t count = 9000;
  std::vector<std::unique_ptr<Tensor>> kept;
  for (int r = 0; r < 3; ++r) kept.push_back(std::make_unique<Tensor>(count * 4, true));
  for (int life = 0; life < 3; ++life)
    run_world(3, 0, [&](Rank& rank) {
      float* mine = kept[static_cast<std::size_t>(rank.rank())]->as<float>();
      for (int round = 0; round < 10; ++round) {
        Tensor fresh(count * 4, true);
        float* data = (round + rank.rank()) % 2 ? mine : fresh.as<float>();
        for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<float>(round + rank.rank());
        EXPECT(rank.run(Rank::request(HVD_ALLREDUCE, "x", {count}, data, data)) == HVD_OK);
        for (std::size_t i = 0; i < count; ++i) EXPECT(data[i] == static_cast<float>(3 * round + 3));
      }
    });
}
