#include "negotiate/node_parts.h"

#include <cstring>

namespace hvd::negotiate {

NodeParts::NodeParts(const std::vector<int>& nodes) : offset_{0} {
  for (const int n : nodes) offset_.push_back(offset_.back() + static_cast<std::size_t>(n));
}

/// Counts one more source of the tensor.
NodeParts::Tensor& NodeParts::begin(std::uint32_t id, std::size_t each) {
  if (id >= tensors_.size()) tensors_.resize(id + 1);
  Tensor& t = tensors_[id];
  if (t.sources == 0 && !t.spoilt) {
    ++held_;
    t.each = each;
    t.bytes.resize(each * offset_.back());
  }
  ++t.sources;
  if (t.each != each) t.spoilt = true;
  return t;
}

void NodeParts::add(std::size_t source, std::uint32_t id, std::size_t each, std::string_view parts) {
  Tensor& t = begin(id, each);
  if (parts.size() != each * nodes(source)) t.spoilt = true;
  if (!t.spoilt) std::memcpy(t.bytes.data() + each * offset_[source], parts.data(), parts.size());
}

unsigned char* NodeParts::add_own(std::uint32_t id, std::size_t each) {
  Tensor& t = begin(id, each);
  return t.spoilt ? nullptr : reinterpret_cast<unsigned char*>(t.bytes.data());  // source 0 is one node
}

void NodeParts::drop(std::uint32_t id) {
  if (id >= tensors_.size()) return;
  Tensor& t = tensors_[id];
  if (t.sources == 0) return;
  --held_;
  t.sources = 0;
  t.spoilt = false;
}

}  // namespace hvd::negotiate
