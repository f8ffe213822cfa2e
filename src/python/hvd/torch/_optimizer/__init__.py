"""The parts of DistributedOptimizer.  The public part is hvd.torch.optimizer."""
