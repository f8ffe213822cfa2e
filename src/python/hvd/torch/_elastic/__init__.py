"""The parts of hvd.torch.elastic."""
