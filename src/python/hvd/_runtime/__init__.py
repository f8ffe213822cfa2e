"""How tensors and questions get from Python into libhvd and back: what every framework's package is made of."""
