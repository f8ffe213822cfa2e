"""The parts of the backend "hvd" of torch.distributed.  The public part is hvd.torch.process_group."""
