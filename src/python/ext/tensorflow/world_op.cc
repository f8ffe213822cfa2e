#include "world_op.h"

#include <cstdint>
#include <cstring>
#include <memory>

#include "attributes.h"
#include "kernel_call.h"

namespace hvd::tensorflow {
namespace {

enum class WorldValue : std::int64_t { size, rank, local_size, local_rank, included };

struct WorldQuery {
  WorldValue what;
  std::int32_t set;
};

/// *answer is filled in; an hvd_status.
int ask(const WorldQuery& question, std::int32_t* answer) {
  hvd_world world{};
  const int known = runtime.get_world(&world);
  std::int32_t place = 0, members = 0;
  const int found = known == HVD_OK ? runtime.set_get(question.set, &place, &members, nullptr) : known;
  switch (question.what) {
    case WorldValue::size:
      *answer = members;
      return found;
    case WorldValue::rank:
      *answer = world.rank;
      return known;
    case WorldValue::local_size:
      *answer = world.local_size;
      return known;
    case WorldValue::local_rank:
      *answer = world.local_rank;
      return known;
    case WorldValue::included:  // as in Horovod, a number and no error: -1 before init, -2 for an unknown set
      *answer = known != HVD_OK ? -1 : found != HVD_OK ? -2 : place >= 0;
      return HVD_OK;
  }
  return HVD_INTERNAL;
}

}  // namespace

void* create_world(TF_OpKernelConstruction* context) {
  OwnedStatus status;
  auto question = std::make_unique<WorldQuery>();
  question->what = static_cast<WorldValue>(integer(context, "what", status));
  question->set = small_integer(context, "process_set", status);
  if (status.ok()) return question.release();
  tf.OpKernelConstruction_Failure(context, status);
  return nullptr;
}

void remove_world(void* kernel) { delete static_cast<WorldQuery*>(kernel); }

void compute_world(void* kernel, TF_OpKernelContext* context) {
  OwnedStatus status;
  std::int32_t answer = 0;
  const int got = ask(*static_cast<WorldQuery*>(kernel), &answer);
  if (got != HVD_OK) {
    status.set(canonical_code(got), runtime.last_error());
    return tf.OpKernelContext_Failure(context, status);
  }
  TF_Tensor* out = tf.AllocateOutput(context, 0, tf_i32, nullptr, 0, sizeof answer, status);
  if (!status.ok()) return tf.OpKernelContext_Failure(context, status);
  std::memcpy(tf.TensorData(out), &answer, sizeof answer);
  tf.DeleteTensor(out);
}

}  // namespace hvd::tensorflow
