/// @file world_op.h — the kernel of HvdWorld: the place of this rank, read when the graph runs.
#pragma once
#include "tf_api.h"

namespace hvd::tensorflow {

// The functions of a TF_KernelBuilder.
void* create_world(TF_OpKernelConstruction* context);
void remove_world(void* kernel);
void compute_world(void* kernel, TF_OpKernelContext* context);

}  // namespace hvd::tensorflow
