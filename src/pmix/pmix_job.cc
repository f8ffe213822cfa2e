#include "pmix/pmix_job.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace hvd::pmix {
namespace {

void free_value(pmix_value_t& value) {
  if (value.type == PMIX_STRING) std::free(value.data.string);
  if (value.type == PMIX_REGEX) std::free(value.data.bo.bytes);
  if (value.type != PMIX_DATA_ARRAY) return;
  auto* const items = static_cast<pmix_info_t*>(value.data.darray->array);
  for (std::size_t i = 0; i < value.data.darray->size; ++i) free_value(items[i].value);
  std::free(items);
  std::free(value.data.darray);
}

/// Zeroed memory of malloc, which libpmix uses too.
template <class T>
T* allocate(std::size_t count) {
  auto* const memory = static_cast<T*>(std::calloc(count, sizeof(T)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

std::string numbers(const std::vector<int>& values) {
  std::vector<std::string> texts;
  for (const int v : values) texts.push_back(std::to_string(v));
  return join(texts, ",");
}

/// The place of one process in the job.
InfoArray describe_process(const PmixJob& job, std::size_t host, std::size_t local_rank) {
  const HostRanks& here = job.hosts[host];
  InfoArray info;
  info.add_rank(PMIX_RANK, here.ranks[local_rank]);
  info.add_rank(PMIX_GLOBAL_RANK, here.ranks[local_rank]);
  info.add_u16(PMIX_LOCAL_RANK, static_cast<std::uint16_t>(local_rank));
  info.add_u16(PMIX_NODE_RANK, static_cast<std::uint16_t>(local_rank));
  info.add_u32(PMIX_NODEID, static_cast<std::uint32_t>(host));
  info.add_u32(PMIX_APPNUM, job.program_of(here.ranks[local_rank]));
  info.add_text(PMIX_HOSTNAME, here.host);
  return info;
}

}  // namespace

InfoArray::~InfoArray() {
  for (pmix_info_t& item : items_) free_value(item.value);
}

pmix_info_t& InfoArray::append(const char* key, pmix_data_type_t type) {
  pmix_info_t& item = items_.emplace_back();
  std::memset(&item, 0, sizeof item);
  std::strncpy(item.key, key, PMIX_MAX_KEYLEN);
  item.value.type = type;
  return item;
}

void InfoArray::add_text(const char* key, const std::string& text) {
  char* const copy = ::strdup(text.c_str());
  if (!copy) throw std::bad_alloc();
  append(key, PMIX_STRING).value.data.string = copy;
}
void InfoArray::add_bool(const char* key, bool yes) { append(key, PMIX_BOOL).value.data.flag = yes; }
void InfoArray::add_u16(const char* key, std::uint16_t value) { append(key, PMIX_UINT16).value.data.uint16 = value; }
void InfoArray::add_u32(const char* key, std::uint32_t value) { append(key, PMIX_UINT32).value.data.uint32 = value; }
void InfoArray::add_rank(const char* key, int rank) {
  append(key, PMIX_PROC_RANK).value.data.rank = static_cast<pmix_rank_t>(rank);
}

void InfoArray::add_regex(const char* key, char* regex, bool has_regex_type) {
  pmix_info_t& item = append(key, has_regex_type ? PMIX_REGEX : PMIX_STRING);
  if (!has_regex_type) {
    item.value.data.string = regex;
    return;
  }
  item.value.data.bo.bytes = regex;
  item.value.data.bo.size = std::strlen(regex) + 1;
}

void InfoArray::add_array(const char* key, InfoArray items) {
  auto* const array = allocate<pmix_data_array_t>(1);
  array->type = PMIX_INFO;
  array->size = items.size();
  array->array = allocate<pmix_info_t>(items.size());
  std::memcpy(array->array, items.data(), items.size() * sizeof(pmix_info_t));
  items.items_.clear();  // `array` owns the memory of the values now
  append(key, PMIX_DATA_ARRAY).value.data.darray = array;
}

InfoArray describe(const PmixLibrary& library, const PmixJob& job) {
  std::vector<std::string> hosts, ranks;
  for (const HostRanks& h : job.hosts) {
    hosts.push_back(h.host);
    ranks.push_back(numbers(h.ranks));
  }
  char *node_map = nullptr, *process_map = nullptr;
  pmix_status_t status = library.generate_regex(join(hosts, ",").c_str(), &node_map);
  if (status == PMIX_SUCCESS) status = library.generate_ppn(join(ranks, ";").c_str(), &process_map);
  if (status != PMIX_SUCCESS)
    throw Error(Code::unavailable, "libpmix", std::string("refuses the map of ranks: ") + library.error_string(status));

  const auto size = static_cast<std::uint32_t>(job.size());
  const auto local_size = static_cast<std::uint32_t>(job.local_ranks().size());
  InfoArray info;
  info.add_regex(PMIX_NODE_MAP, node_map, library.has_regex_type);
  info.add_regex(PMIX_PROC_MAP, process_map, library.has_regex_type);
  info.add_u32(PMIX_JOB_SIZE, size);
  info.add_u32(PMIX_UNIV_SIZE, size);
  info.add_u32(PMIX_MAX_PROCS, size);
  info.add_u32(PMIX_SPAWNED, 0);
  info.add_u32(PMIX_LOCAL_SIZE, local_size);
  info.add_u32(PMIX_NODE_SIZE, local_size);
  info.add_u32(PMIX_NUM_NODES, static_cast<std::uint32_t>(job.hosts.size()));
  info.add_u32(PMIX_JOB_NUM_APPS, 1);
  info.add_u32(PMIX_NODEID, static_cast<std::uint32_t>(job.host));
  info.add_text(PMIX_LOCAL_PEERS, numbers(job.local_ranks()));
  info.add_rank(PMIX_LOCALLDR, job.local_ranks().front());
  info.add_text(PMIX_NSDIR, job.folder);
  info.add_text(PMIX_TMPDIR, job.folder);
  info.add_text(PMIX_JOBID, job.name);
  info.add_bool("pmix.ndosub", job.oversubscribed);  // PMIX_NODE_OVERSUBSCRIBED, which 4.1's header lacks
  for (std::size_t h = 0; h < job.hosts.size(); ++h)
    for (std::size_t i = 0; i < job.hosts[h].ranks.size(); ++i)
      info.add_array(PMIX_PROC_DATA, describe_process(job, h, i));
  return info;
}

}  // namespace hvd::pmix
