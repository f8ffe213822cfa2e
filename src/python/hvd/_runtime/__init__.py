"""The common base of all frameworks' packages: the way of tensors and questions from Python into libhvd and back."""
