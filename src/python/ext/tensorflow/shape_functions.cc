#include "shape_functions.h"

#include <cstddef>
#include <cstdint>

namespace hvd::tensorflow {
namespace {

/// False if nothing is known of the input's shape.
bool input_shape(TF_ShapeInferenceContext* context, int i, TF_ShapeHandle* shape) {
  OwnedStatus status;
  tf.ShapeInferenceContextGetInput(context, i, shape, status);
  return status.ok() && tf.ShapeInferenceContextRankKnown(context, shape);
}

void output_shape(TF_ShapeInferenceContext* context, int i, TF_ShapeHandle* shape) {
  OwnedStatus ignored;
  tf.ShapeInferenceContextSetOutput(context, i, shape, ignored);
}

}  // namespace

void same_shapes(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.ShapeInferenceContextSetUnknownShape(context, status);
  TF_ShapeHandle* shape = tf.NewShapeHandle();
  for (int i = 0; i < tf.ShapeInferenceContextNumInputs(context); ++i)
    if (input_shape(context, i, shape)) output_shape(context, i, shape);
  tf.DeleteShapeHandle(shape);
}

void other_first_dimension(TF_ShapeInferenceContext* context, TF_Status* status) {
  tf.ShapeInferenceContextSetUnknownShape(context, status);
  TF_ShapeHandle* shape = tf.NewShapeHandle();
  TF_ShapeHandle* rows = tf.ShapeInferenceContextVectorFromSize(context, static_cast<std::size_t>(-1));  // unknown
  for (int i = 0; i < tf.ShapeInferenceContextNumInputs(context); ++i) {
    if (!input_shape(context, i, shape)) continue;
    TF_ShapeHandle* rest = tf.NewShapeHandle();
    TF_ShapeHandle* result = tf.NewShapeHandle();
    OwnedStatus joined;
    if (tf.ShapeInferenceContextRank(context, shape) == 0) {
      output_shape(context, i, rows);
    } else {
      tf.ShapeInferenceContextSubshape(context, shape, 1, INT64_MAX, rest, joined);
      if (joined.ok()) tf.ShapeInferenceContextConcatenateShapes(context, rows, rest, result, joined);
      if (joined.ok()) output_shape(context, i, result);
    }
    tf.DeleteShapeHandle(rest);
    tf.DeleteShapeHandle(result);
  }
  tf.DeleteShapeHandle(rows);
  tf.DeleteShapeHandle(shape);
}

void scalars(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = tf.ShapeInferenceContextScalar(context);
  tf.ShapeInferenceContextSetOutput(context, 0, shape, status);
  tf.DeleteShapeHandle(shape);
}

void no_shapes(TF_ShapeInferenceContext*, TF_Status*) {}

}  // namespace hvd::tensorflow
