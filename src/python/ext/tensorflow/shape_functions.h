/// @file shape_functions.h — the shapes of the ops' results, for TensorFlow's shape inference.
///
/// Shape functions are optional: before 2.10, TensorFlow's C API returned the shape of the first input only.
/// hvd/tensorflow/_library.py sets the shapes that the functions leave unknown.
#pragma once
#include "tf_api.h"

namespace hvd::tensorflow {

/// Each result has its input's shape.
void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status);
/// [d0, d1, ...] becomes [?, d1, ...], and a scalar [?].  An alltoall's splits too: [n] becomes [?].
void other_first_dimension(TF_ShapeInferenceContext* context, TF_Status* status);
/// The one result is a scalar.
void scalars(TF_ShapeInferenceContext* context, TF_Status* status);
/// The op has no results.
void no_shapes(TF_ShapeInferenceContext* context, TF_Status* status);

}  // namespace hvd::tensorflow
