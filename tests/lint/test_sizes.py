"""check-sizes counts data members, and wants a reason exactly where a class is large."""

from __future__ import annotations

from trees import load

sizes = load("check-sizes")

SMALL = """
class Small final : public Base {
 public:
  explicit Small(int a) : a_(a), b_{a} {}
  int a() const { int local = 1; return local; }
  using Row = std::vector<int>;

 private:
  struct Inner { int x, y; };
  static constexpr int most = 3;
  const int a_, b_;
  std::map<int, std::string> names_;  ///< a comment; with a semicolon
  std::array<char, 4> bytes_[2] = {};
  std::atomic<bool> idle_{false}, done_{false};
};
"""
LARGE = "/// What it does.\n{}class Large {{\n" + "".join(f"  int m{n}_ = 0;\n" for n in range(16)) + "}};\n"


def test_members_are_counted() -> None:
    """Functions, aliases, constants and inner types are no members; a list counts each name."""
    (small,) = sizes.sizes_of(SMALL, "small.h")
    assert (small.members, small.name, small.stated) == (6, "Small", False)


def test_a_large_class_states_its_reason() -> None:
    """In the comment right above it."""
    (bare,) = sizes.sizes_of(LARGE.format(""), "large.h")
    (stated,) = sizes.sizes_of(LARGE.format("/// Size: one table.\n"), "large.h")
    assert (bare.members, bare.stated, stated.stated) == (16, False, True)
